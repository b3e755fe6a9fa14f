package testbroker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// properties are the settings of the broker. The sizes fit a test: a few topics, one client. RocketMQ has
// no setting for the address of the port for slaves (ha), so it listens on every address.
func (b *RocketBroker) properties() map[string]string {
	p := map[string]string{
		"brokerClusterName": "c1", "brokerName": b.name, "brokerId": fmt.Sprint(b.id),
		"namesrvAddr": b.names.Addr(), "bindAddress": "127.0.0.1", "listenPort": fmt.Sprint(b.port), "haListenPort": fmt.Sprint(b.ha),
		"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
		"storePathRootDir":        filepath.Join(b.dir, "store"),
		"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "6000000",
		"maxHashSlotNum": "50000", "maxIndexNum": "200000",
		"diskMaxUsedSpaceRatio": "95", "autoCreateTopicEnable": "false",
		// Its timers are for messages that come at a time of their own, which no test sends. With them it copies
		// 37 MB each second, and counts a million slots each time that it is asked for its state: most of what
		// the broker of a test computes.
		"timerWheelEnable": "false",
	}
	if b.id != 0 {
		p["brokerRole"] = "SLAVE"
	} else if b.opts.Slave {
		p["brokerRole"] = "ASYNC_MASTER"
	}
	if b.opts.ACL {
		p["authenticationEnabled"], p["authorizationEnabled"] = "true", "true"
		p["authenticationProvider"] = "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider"
		p["authenticationMetadataProvider"] = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
		p["authorizationProvider"] = "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider"
		p["authorizationMetadataProvider"] = "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
		p["initAuthenticationUser"] = fmt.Sprintf(`{"username":"%s","password":"%s"}`, User, Password)
		p["innerClientAuthenticationCredentials"] = fmt.Sprintf(`{"accessKey":"%s","secretKey":"%s"}`, User, Password)
	}
	maps.Copy(p, b.opts.Set)
	return p
}

func writeConf(name string, p map[string]string) error {
	var text strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "%s=%s\n", k, p[k])
	}
	return os.WriteFile(name, []byte(text.String()), 0o600)
}

// writeTLS writes certificates, and the configuration for name server and brokers: plain and TLS on the
// same port.
func (n *RocketNames) writeTLS() error {
	if err := n.writeCerts(); err != nil {
		return err
	}
	pem := filepath.Join(n.dir, "broker.pem")
	return writeConf(filepath.Join(n.dir, "tls.properties"), map[string]string{
		"tls.test.mode.enable": "false", "tls.server.mode": "permissive", "tls.server.need.client.auth": "optional",
		"tls.server.certPath": pem, "tls.server.keyPath": pem, "tls.server.trustCertPath": n.CA()})
}

// rocketLogback: without it each process writes hundreds of lines about its own logging, and files into the
// user's home folder. The names of logback's classes are those of RocketMQ's own copy.
const rocketLogback = `<configuration>
 <statusListener class="org.apache.rocketmq.logging.ch.qos.logback.core.status.NopStatusListener"/>
 <appender name="C" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
  <encoder><pattern>%d{HH:mm:ss.SSS} %p %c - %m%n</pattern></encoder>
 </appender>
 <root level="WARN"><appender-ref ref="C"/></root>
 <logger name="RocketmqConsole" level="INFO"/>
</configuration>
`
