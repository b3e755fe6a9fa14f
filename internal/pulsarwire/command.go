package pulsarwire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Commands by BaseCommand.Type. The field of BaseCommand that holds a command has the same
// number as its type.
const (
	cmdConnect        = 2
	cmdConnected      = 3
	cmdSubscribe      = 4
	cmdMessage        = 9
	cmdFlow           = 11
	cmdSuccess        = 13
	cmdError          = 14
	cmdCloseConsumer  = 16
	cmdPing           = 18
	cmdPong           = 19
	cmdLookup         = 23
	cmdLookupResponse = 24
	cmdAuthChallenge  = 36
	cmdAuthResponse   = 37
	cmdTopicMigrated  = 68
)

const protocolVersion = 20 // its newest; a broker that knows only older ones answers with its own

// fields builds a message.
type fields []byte

func (f fields) number(n protowire.Number, v uint64) fields {
	return protowire.AppendVarint(protowire.AppendTag(f, n, protowire.VarintType), v)
}

func (f fields) flag(n protowire.Number, v bool) fields {
	return f.number(n, protowire.EncodeBool(v))
}

func (f fields) text(n protowire.Number, v string) fields {
	return protowire.AppendString(protowire.AppendTag(f, n, protowire.BytesType), v)
}

func (f fields) bytes(n protowire.Number, v []byte) fields {
	return protowire.AppendBytes(protowire.AppendTag(f, n, protowire.BytesType), v)
}

// base is a BaseCommand around the command of a type.
func base(command uint64, body fields) fields {
	return fields(nil).number(1, command).bytes(protowire.Number(command), body)
}

func connectCommand(version, authMethod string, auth []byte, proxied string) fields {
	f := fields(nil).text(1, version)
	if authMethod != "" {
		f = f.text(5, authMethod).bytes(3, auth)
	}
	f = f.number(4, protocolVersion)
	if proxied != "" {
		f = f.text(6, proxied)
	}
	return base(cmdConnect, f.bytes(10, fields(nil).flag(1, true))) // we renew our login when asked
}

func authResponseCommand(version, method string, auth []byte) fields {
	return base(cmdAuthResponse, fields(nil).text(1, version).bytes(2, fields(nil).text(1, method).bytes(2, auth)).number(3, protocolVersion))
}

func lookupCommand(topic string, request uint64, authoritative bool) fields {
	return base(cmdLookup, fields(nil).text(1, topic).number(2, request).flag(3, authoritative))
}

// subscribeCommand asks for an exclusive subscription that is not durable and begins with an
// entry. The batch index makes the broker begin with that entry and not after it. A topic
// that is missing is not made.
func subscribeCommand(topic, name string, consumer, request uint64, ledger, entry int64) fields {
	const exclusive, first = 0, 0
	start := fields(nil).number(1, uint64(ledger)).number(2, uint64(entry)).number(4, first)
	return base(cmdSubscribe, fields(nil).text(1, topic).text(2, name).number(3, exclusive).number(4, consumer).number(5, request).
		flag(8, false).bytes(9, start).flag(15, false))
}

func flowCommand(consumer, permits uint64) fields {
	return base(cmdFlow, fields(nil).number(1, consumer).number(2, permits))
}

func closeConsumerCommand(consumer, request uint64) fields {
	return base(cmdCloseConsumer, fields(nil).number(1, consumer).number(2, request))
}

// command is what we read of a BaseCommand.
type command struct {
	kind          uint64
	request       uint64
	consumer      uint64
	ledger, entry int64
	maxMessage    int64 // of CONNECTED

	// of ERROR, and of a lookup that failed
	code    Code
	message string

	// of LOOKUP_RESPONSE
	url, urlTLS   string
	response      uint64 // 0: ask url, 1: url has the topic, 2: failed
	authoritative bool
	proxied       bool
}

// eachField calls do for each field of a message, with the value of a number or the bytes of
// another field.
func eachField(b []byte, do func(n protowire.Number, number uint64, bytes []byte)) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var number uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		do(n, number, bytes)
	}
	return nil
}

// parseCommand reads a BaseCommand.
func parseCommand(b []byte) (c command, err error) {
	var body []byte
	if err := eachField(b, func(n protowire.Number, number uint64, bytes []byte) {
		if n == 1 {
			c.kind = number
		} else if bytes != nil {
			body = bytes
		}
	}); err != nil {
		return c, damaged("a command: %v", err)
	}
	var id []byte
	err = eachField(body, func(n protowire.Number, number uint64, bytes []byte) {
		switch c.kind {
		case cmdConnected:
			if n == 3 {
				c.maxMessage = int64(number)
			}
		case cmdMessage:
			if n == 1 {
				c.consumer = number
			} else if n == 2 {
				id = bytes
			}
		case cmdSuccess:
			if n == 1 {
				c.request = number
			}
		case cmdError:
			switch n {
			case 1:
				c.request = number
			case 2:
				c.code = Code(number)
			case 3:
				c.message = string(bytes)
			}
		case cmdCloseConsumer:
			if n == 1 {
				c.consumer = number
			}
		case cmdTopicMigrated:
			if n == 1 {
				c.consumer = number
			}
		case cmdLookupResponse:
			switch n {
			case 1:
				c.url = string(bytes)
			case 2:
				c.urlTLS = string(bytes)
			case 3:
				c.response = number
			case 4:
				c.request = number
			case 5:
				c.authoritative = number != 0
			case 6:
				c.code = Code(number)
			case 7:
				c.message = string(bytes)
			case 8:
				c.proxied = number != 0
			}
		}
	})
	if err == nil && id != nil {
		err = eachField(id, func(n protowire.Number, number uint64, _ []byte) {
			switch n {
			case 1:
				c.ledger = int64(number)
			case 2:
				c.entry = int64(number)
			}
		})
	}
	if err != nil {
		return c, damaged("a command of type %d: %v", c.kind, err)
	}
	return c, nil
}
