"""Chunks that a writer puts into the dataset's bucket itself (docs/LANDING.md)."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import os
import secrets
import ssl
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from ._errors import PushError

_TIMEOUT = 60.0  # seconds that a service may be silent
_WAITS = (0.05, 2.0)  # seconds: the first one and the longest


class Client(Protocol):
    """What is used of boto3's S3 client."""

    def put_object(self, **parameters: Any) -> Any: ...


class _Passing(Exception):
    """The service is busy or away."""


class Uploader:
    """Puts chunks below the s3://bucket/prefix that a master names."""

    def __init__(self, upload: dict[str, Any], client: Client | None, asked: float) -> None:
        # Not urlsplit: a prefix may have a # or a question mark.
        self.bucket, _, prefix = upload["url"].removeprefix("s3://").partition("/")
        self.prefix = prefix.strip("/")
        self._stream: str = upload["stream"]
        self._clock: float = upload["now_ms"] / 1000 - asked  # the master's, for keys
        self._put: Callable[[str, bytes], None]
        if client is None:
            self._put = _Environment(self.bucket).put
        else:
            given = client

            def put(key: str, data: bytes) -> None:
                crc = _crc32(data)
                try:
                    given.put_object(Bucket=self.bucket, Key=key, Body=data, IfNoneMatch="*", ChecksumCRC32=crc)
                except Exception as error:
                    if not _is_there(error):
                        raise

            self._put = put

    def stage(
        self,
        transaction: str,
        partition: int,
        chunk: bytes,
        patience: float | None,
        told: Callable[[str], None],
        pause: Callable[[float], None],
    ) -> str:
        """Puts a chunk and returns its locator. Another try has another key: if the first one was
        stored after all, nobody commits it, and it is deleted after stage_ttl. Before another try it tells why, and
        pauses; pause raises an error if nobody wants the chunk any more."""
        name = hashlib.sha256(transaction.encode()).digest()[:8].hex()
        wait, began = _WAITS[0], time.monotonic()
        while True:
            ms = int((self._clock + time.monotonic()) * 1000)
            drawn = base64.b32encode(secrets.token_bytes(10)).decode().lower()
            key = f"{self._stream}/{partition}/{ms // 3_600_000}/{name}-{ms}-{drawn}"
            try:
                self._put(f"{self.prefix}/{key}" if self.prefix else key, chunk)
            except _Passing as error:
                if patience is not None and time.monotonic() - began + wait > patience:
                    raise PushError(f"s3://{self.bucket}/{self.prefix}: {error}") from None
                told(str(error))
                pause(wait)
                wait = min(2 * wait, _WAITS[1])
                continue
            records, total = struct.unpack_from("<I", chunk, 8)[0], struct.unpack_from("<I", chunk, 24)[0]
            return f"1 {key} {len(chunk)} {records} {total:08x}"


def _is_there(error: Exception) -> bool:
    """Whether boto3's ClientError says 412: an object has the key. Nobody else has drawn this key, so a try of boto3
    whose answer was lost has put it. The commit compares its size and its header, which has the sum of its bytes."""
    response: Any = getattr(error, "response", None)
    about = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return isinstance(about, dict) and about.get("HTTPStatusCode") == 412


def _crc32(data: bytes) -> str:
    return base64.b64encode(struct.pack(">I", zlib.crc32(data))).decode()


class _Environment:
    """One PUT, signed with the keys of the environment (AWS Signature Version 4)."""

    def __init__(self, bucket: str) -> None:
        env = os.environ
        self._key, self._secret = env.get("AWS_ACCESS_KEY_ID", ""), env.get("AWS_SECRET_ACCESS_KEY", "")
        self._session = env.get("AWS_SESSION_TOKEN", "")
        if not self._key or not self._secret:
            raise PushError(
                "upload=True takes AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from the environment, and one of "
                "them is not set. For a profile or a role give a client: upload=boto3.client('s3')"
            )
        self._region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
        endpoint = endpoint or f"https://s3.{self._region}.amazonaws.com"
        at = urlsplit(endpoint)
        if at.scheme not in ("http", "https") or not at.hostname:
            raise PushError(f"AWS_ENDPOINT_URL_S3: {endpoint!r} is not http(s)://HOST[:PORT]")
        self._tls, self._host = at.scheme == "https", at.netloc
        self._base = f"{at.path.rstrip('/')}/{bucket}"

    def put(self, key: str, data: bytes) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        path = quote(f"{self._base}/{key}", safe="/-_.~")
        body = hashlib.sha256(data).hexdigest()
        headers = {
            "host": self._host,
            "if-none-match": "*",
            "x-amz-checksum-crc32": _crc32(data),
            "x-amz-content-sha256": body,
            "x-amz-date": stamp,
        }
        if self._session:
            headers["x-amz-security-token"] = self._session
        signed = ";".join(sorted(headers))
        canonical = "\n".join(
            ["PUT", path, "", *(f"{name}:{headers[name]}" for name in sorted(headers)), "", signed, body]
        )
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        secret = f"AWS4{self._secret}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
        status, said = self._send(path, data, headers)
        if status < 300 or status == 412:
            # 412: it is there. Nobody else has the key, so a try whose answer was lost has put it,
            # and the commit checks it.
            return
        message = f"s3: {path}: the service answers {status}: {said[:300]!r}"
        if status >= 500 or status == 429:
            raise _Passing(message)
        raise PushError(message)

    def _send(self, path: str, data: bytes, headers: dict[str, str]) -> tuple[int, str]:
        connection: http.client.HTTPConnection
        if self._tls:
            connection = http.client.HTTPSConnection(self._host, timeout=_TIMEOUT, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(self._host, timeout=_TIMEOUT)
        try:
            connection.request("PUT", path, body=data, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise _Passing(f"{self._host} cannot be reached: {error}") from None
        finally:
            connection.close()
