// Package starter writes a beginning for a user's own data: it looks at a file, a folder
// or a topic, and gives a spec for it and a program that trains on it. `headrace init`
// uses it. It takes no lease and asks no master.
//
//	look.go     Look: from DATA to a Plan
//	origin.go   what DATA names: files or a topic; part.go one of the files, data on S3;
//	            container.go archives and the like, which are not read
//	partitions.go what the folders key=value of files say
//	fields.go   records to named values: JSON, fields between delimiters
//	features.go TFRecord: features to named values
//	column.go   what the values of a field are, and what to make of them
//	refine.go   the plan is tried on many records and mended
//	spec.go     the plan as a spec's YAML
//	program.go  the plan as a program: numpy.py.tmpl, torch.py.tmpl, tf.py.tmpl
package starter
