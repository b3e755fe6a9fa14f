package testbroker

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"
)

// User and Password are the login at the SASL listeners of a secure broker.
const (
	User     = "headrace"
	Password = "correct-horse"
)

// properties are the settings of the broker. The sizes fit a test: a few topics, one client.
func (b *Broker) properties() string {
	p := map[string]string{
		"process.roles":                       "broker",
		"node.id":                             fmt.Sprint(b.id),
		"controller.quorum.bootstrap.servers": fmt.Sprintf("127.0.0.1:%d", b.quorum),
		"controller.listener.names":           "CONTROLLER",
		"inter.broker.listener.name":          "PLAINTEXT",
		"log.dirs":                            filepath.Join(b.dir, "data"),

		"offsets.topic.replication.factor":         "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"share.coordinator.state.topic.min.isr":    "1",
		"group.initial.rebalance.delay.ms":         "0",
		"broker.session.timeout.ms":                "2000", // a start after kill -9 waits so long
		"broker.heartbeat.interval.ms":             "500",
		"initial.broker.registration.timeout.ms":   fmt.Sprint(startWithin.Milliseconds()), // else it ends if the controller is not there after a minute
		"auto.create.topics.enable":                "false",
		"offsets.topic.num.partitions":             "4",
		"transaction.state.log.num.partitions":     "4",
		"log.cleaner.dedupe.buffer.size":           "16777216",
		"log.cleaner.backoff.ms":                   "500",
		"log.initial.task.delay.ms":                "0",
		"log.retention.ms":                         "-1", // tests write records with old times; a topic may set its own limit
		// So that compaction and transactions happen during a test:
		"log.segment.delete.delay.ms":                                 "1000",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",

		"share.coordinator.state.topic.replication.factor": "1",
	}
	if b.opts.Steady {
		p["broker.session.timeout.ms"] = "30000"
	}
	if b.opts.DeletesEvery > 0 {
		p["log.retention.check.interval.ms"] = fmt.Sprint(b.opts.DeletesEvery.Milliseconds())
	}
	listeners := []string{fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", b.ports[1])}
	if b.id == 1 {
		p["process.roles"] = "broker,controller"
		listeners = append(listeners, fmt.Sprintf("CONTROLLER://127.0.0.1:%d", b.ports[0]))
	}
	protocols := "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
	if b.opts.Secure {
		listeners = append(listeners,
			fmt.Sprintf("SASL://127.0.0.1:%d", b.ports[2]),
			fmt.Sprintf("SSL://127.0.0.1:%d", b.ports[3]),
			fmt.Sprintf("SASLSSL://127.0.0.1:%d", b.ports[4]))
		protocols += ",SASL:SASL_PLAINTEXT,SSL:SSL,SASLSSL:SASL_SSL"
		p["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
		for _, l := range []string{"sasl", "saslssl"} {
			p["listener.name."+l+".plain.sasl.jaas.config"] = fmt.Sprintf(
				`org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s";`, User, Password)
			for _, m := range []string{"scram-sha-256", "scram-sha-512"} {
				p["listener.name."+l+"."+m+".sasl.jaas.config"] = `org.apache.kafka.common.security.scram.ScramLoginModule required;`
			}
		}
		for _, l := range []string{"ssl", "saslssl"} {
			p["listener.name."+l+".ssl.keystore.type"] = "PEM"
			p["listener.name."+l+".ssl.keystore.location"] = filepath.Join(b.dir, "broker.pem")
			p["listener.name."+l+".ssl.truststore.type"] = "PEM"
			p["listener.name."+l+".ssl.truststore.location"] = b.CA()
			p["listener.name."+l+".ssl.client.auth"] = "requested"
		}
	}
	p["listeners"] = strings.Join(listeners, ",")
	p["listener.security.protocol.map"] = protocols

	var lines []string
	for k, v := range p {
		lines = append(lines, k+"="+v+"\n")
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

// formatArgs are arguments of the command that formats the data folder: the id of the cluster, and the users
// whose passwords the broker stores as salted hashes.
func (b *Broker) formatArgs(properties string) []string {
	args := []string{"format", "-t", b.clusterID, "-c", properties}
	if b.id == 1 {
		args = append(args, "--standalone")
	}
	if b.opts.Secure {
		for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", m, User, Password))
		}
	}
	return args
}
