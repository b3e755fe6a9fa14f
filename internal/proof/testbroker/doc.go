// Package testbroker starts real brokers for tests and demonstrations: Apache Kafka, Pulsar and
// RocketMQ with one node or a few, a real S3 server, and a real schema registry. They listen on
// 127.0.0.1, use temporary folders, and are ended by their process ids. The package needs java (17 or
// newer), and mvn once to fetch the jars into the user's cache folder. Of the product only `headrace
// demo` uses it.
//
//	install.go     fetches jars from Maven Central, once per machine
//	classes.go     the classes of those jars in a form that a JVM reads quickly
//	properties.go  Kafka's configuration and its users
//	ports.go       ports that nothing else gets by accident
//	kafka.go       Kafka: one broker or a few
//	process.go     a broker's process: start, wait until it answers, stop, kill, start again
//	orphan_linux.go orphan_other.go  end the brokers of a test that is killed
//	certs.go       a certificate authority and the broker's certificate
//	admin.go       Kafka's topics, partitions and deleted records, for tests
//	append.go      each record once in a Kafka topic, through the broker's deaths
//	broker-kafka/  the same as a command: make broker-kafka
//
//	pulsar.go        Pulsar: broker, bookie and metadata in one process; tokens and TLS
//	pulsar_admin.go  its admin API; pulsar_append.go each record once in a topic
//	broker-pulsar/   the same as a command: make broker-pulsar
//
//	rocketmq.go        RocketMQ: a name server, one broker or a few, a slave
//	rocketmq_conf.go   their configuration
//	rocketmq_admin.go  topics, trimming, and RocketMQ's own mqadmin
//	rocketmq_append.go each record once in a queue, through the broker's deaths
//	broker-rocketmq/   the same as a command: make broker-rocketmq
//
//	s3.go            versitygw, an S3 server over a folder, built from its module
//
//	registry.go      Apicurio Registry, a schema registry; server-registry/ the same as a command
package testbroker
