// Package clicklog writes the click log of the quick start: a seeded, synthetic log in the layout of
// Criteo's TSV files (a label, 13 integers, 26 categories as 8 hex digits; some integers are missing).
// Beside it, it writes the truth that the report checks against: for each record its file, byte
// offset, label, and a checksum of its decoded values. It knows nothing of leases.
//
// The log has something to learn and something to notice:
//
//   - categories follow Zipf's law, each column with its own vocabulary (3 to
//     120,000 ids) and exponent (1.05 to 1.3);
//   - integers are log-normal; 0 to 45 % of a column are missing;
//   - the label is a coin thrown with p = sigmoid(bias + sum of the weights of
//     the record's ids + a weight for the logarithm of each integer);
//   - half way through the log the world drifts: in every second column popular ids change places
//     with rare ones, and every third column gets new weights.
//
// The same seed and number of records give the same bytes, whatever the number of cores: each block of
// 8192 records has its own random stream.
//
//	world.go     vocabularies, weights, tables: everything that is drawn once per seed
//	rows.go      one block of records
//	write.go     writes the files, in parallel, and the truth
//	topic.go     where records are in a topic that the log is produced into
//	truth.go     reads the truth back
package clicklog
