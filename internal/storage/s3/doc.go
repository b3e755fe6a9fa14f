// Package s3 is storage in a bucket of an S3 service. A Bucket is a storage.Store, and reads
// what others wrote as storage.Objects. It finds credentials where `aws s3` finds them: the
// environment, a profile, the instance's role, a web identity.
//
// Every write carries a CRC64-NVME that the server verifies. No error and no log contains a
// secret.
//
//	config.go       where a bucket is and who asks: Config, ParseURL
//	conn.go         a connection that is silent for too long is given up
//	credentials.go  the chain of credentials, and what it says when there are none
//	bucket.go       Bucket: a storage.Store
//	put.go          objects in, in one piece or in parts, with their sums
//	objects.go      reading what others wrote
//	errors.go       a service's answer in words, with what to do
package s3
