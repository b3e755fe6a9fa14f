package io.github.headrace.flink.table;

import java.time.Duration;
import io.github.headrace.push.Compression;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;

/** The options of a table. They have the names of the builder's methods. */
final class HeadraceOptions {
    static final ConfigOption<String> DATASET = ConfigOptions.key("dataset").stringType().noDefaultValue()
        .withDescription("The dataset; its spec has landing.");
    static final ConfigOption<String> MASTER = ConfigOptions.key("master").stringType().noDefaultValue()
        .withDescription("HOST:PORT of the master.");
    static final ConfigOption<String> STATE = ConfigOptions.key("state").stringType().noDefaultValue()
        .withDescription("The state folder of a master on this machine, instead of its address and a token.");
    static final ConfigOption<String> TOKEN_FILE = ConfigOptions.key("token-file").stringType().noDefaultValue()
        .withDescription("A file on each task manager whose first line is a token with the role pusher.");
    static final ConfigOption<String> TLS_CERT = ConfigOptions.key("tls-cert").stringType().noDefaultValue()
        .withDescription("Our certificate (PEM), on each task manager.");
    static final ConfigOption<String> TLS_KEY = ConfigOptions.key("tls-key").stringType().noDefaultValue()
        .withDescription("Its key (PEM, PKCS 8).");
    static final ConfigOption<String> TLS_CA = ConfigOptions.key("tls-ca").stringType().noDefaultValue()
        .withDescription("The authority (PEM) that signed the master's certificate.");
    static final ConfigOption<String> SINK_ID = ConfigOptions.key("sink.id").stringType().defaultValue("flink")
        .withDescription("Names the sink in the ids of its transactions.");
    static final ConfigOption<DeliveryGuarantee> GUARANTEE = ConfigOptions.key("sink.delivery-guarantee").enumType(DeliveryGuarantee.class)
        .defaultValue(DeliveryGuarantee.EXACTLY_ONCE).withDescription("exactly-once or at-least-once.");
    static final ConfigOption<Duration> COMMIT_INTERVAL = ConfigOptions.key("sink.commit-interval").durationType().defaultValue(Duration.ofSeconds(1))
        .withDescription("How often records become visible with at-least-once.");
    static final ConfigOption<Compression> COMPRESSION = ConfigOptions.key("sink.compression").enumType(Compression.class)
        .defaultValue(Compression.ZLIB).withDescription("zlib or none.");
    static final ConfigOption<Boolean> UPLOAD = ConfigOptions.key("sink.upload").booleanType().defaultValue(false)
        .withDescription("Task managers put chunks into the dataset's bucket themselves.");

    private HeadraceOptions() {}
}
