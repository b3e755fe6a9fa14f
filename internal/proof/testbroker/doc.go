// Package testbroker starts a real Apache Kafka or RocketMQ for tests and
// demonstrations: one node or a few, on 127.0.0.1, in temporary folders, ended by
// their process ids.
// It needs java (17 or newer), and mvn once to fetch the jars into the user's
// cache folder. Of the product only `headrace demo --source kafka` uses it.
//
//	install.go     jars from Maven Central, once per machine
//	properties.go  the broker's configuration, and who may log in
//	ports.go       ports that nobody is given by accident
//	kafka.go       Kafka: one broker or a few
//	process.go     a broker's process: start, wait until it answers, stop, kill, start again
//	certs.go       a certificate authority and the broker's certificate
//	admin.go       topics, partitions and deleted records, for tests
//	append.go      each record once, through the broker's deaths
//	broker-kafka/  the same as a command: make broker-kafka
//
//	rocketmq.go        RocketMQ: a name server, one broker or a few, a slave
//	rocketmq_conf.go   their configuration
//	rocketmq_admin.go  topics, trimming, and RocketMQ's own mqadmin
//	broker-rocketmq/   the same as a command: make broker-rocketmq
package testbroker
