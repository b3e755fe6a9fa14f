// Package starter writes a first spec and a first program for a user's own data. It looks at
// a file, a folder or a topic, and writes a spec that reads it and a program that trains on
// it. `headrace init` uses it. It takes no lease and asks no master.
//
//	look.go     Look: from DATA to a Plan
//	origin.go   what DATA names: files or a topic; part.go opens one of the files, and finds
//	            data on S3; container.go refuses archives and the like
//	partitions.go columns from folders key=value that files lie in
//	fields.go   records to named values: JSON, fields between delimiters
//	features.go TFRecord: features to named values
//	column.go   counts what the values of a field are, and makes a column of the field
//	refine.go   tries the plan on many records and corrects it
//	spec.go     the plan as a spec's YAML
//	program.go  the plan as a program: numpy.py.tmpl, torch.py.tmpl, tf.py.tmpl
package starter
