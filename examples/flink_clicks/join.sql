-- Joins impressions with their clicks, and pushes the result into the dataset clicks.
-- run.py fills in the names that begin with a dollar sign.
SET 'execution.checkpointing.interval' = '500 ms';
SET 'execution.checkpointing.dir' = 'file://$CHECKPOINTS';
SET 'restart-strategy.type' = 'fixed-delay';
SET 'restart-strategy.fixed-delay.attempts' = '100';
SET 'restart-strategy.fixed-delay.delay' = '500 ms';
SET 'parallelism.default' = '2';
SET 'pipeline.name' = 'clicks';

-- Two streams that Flink makes up, one record after the other: put your topics here.
-- An impression every 10 ms; every fourth one is clicked on, up to 3 s later.
CREATE TABLE impressions (
  impression BIGINT,
  user_id AS MOD(impression * 7919, 1000),
  ad AS MOD(impression * 104729, 50),
  shown_at AS TO_TIMESTAMP_LTZ(1769817600000 + impression * 10, 3),
  WATERMARK FOR shown_at AS shown_at - INTERVAL '1' SECOND
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '$RATE',
  'fields.impression.kind' = 'sequence',
  'fields.impression.start' = '0',
  'fields.impression.end' = '$LAST_IMPRESSION'
);

CREATE TABLE clicks (
  click BIGINT,
  of_impression AS click * 4,
  clicked_at AS TO_TIMESTAMP_LTZ(1769817600000 + click * 40 + MOD(click * 31, 3000), 3),
  WATERMARK FOR clicked_at AS clicked_at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '$CLICK_RATE',
  'fields.click.kind' = 'sequence',
  'fields.click.start' = '0',
  'fields.click.end' = '$LAST_CLICK'
);

CREATE TABLE training (
  impression BIGINT,
  user_id BIGINT,
  ad BIGINT,
  clicked FLOAT
) WITH (
  'connector' = 'headrace',
  'state' = '$STATE',
  'dataset' = 'clicks'
);

-- An impression becomes one row: with its click, or without one when none can come any more.
INSERT INTO training
SELECT i.impression, i.user_id, i.ad, CASE WHEN c.click IS NULL THEN CAST(0 AS FLOAT) ELSE CAST(1 AS FLOAT) END
FROM impressions AS i
LEFT JOIN clicks AS c
  ON c.of_impression = i.impression
  AND c.clicked_at BETWEEN i.shown_at AND i.shown_at + INTERVAL '5' SECOND;
