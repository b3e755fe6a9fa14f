// Package manifest is the format of a checkpoint on storage: which files it is
// made of, and which records are in the model (its cut). docs/CHECKPOINTS.md
// describes it field by field; the Python client writes the same.
//
// Only a manifest makes a checkpoint. It appears by one rename, after every file that it
// names is on the disk. A checkpoint does not count if its manifest is missing or damaged,
// or if its files do not match. A manifest may come from anywhere, so nothing in it is
// believed before Validate has checked it.
//
// The package knows neither the ledger nor a network. The rest of flashckpt, agents,
// the master and the command line use it.
//
//	manifest.go  the types: Manifest, File, Part; package cut has the cut
//	parse.go     bytes to a Manifest, with limits; the checksum at the end
//	validate.go  what must hold in every manifest
//	fs.go        the few calls that storage must offer, and those of this machine
//	paths.go     paths on this machine and in buckets
//	folders.go   folders that survive a power failure
//	write.go     files and manifests onto storage, so that power may fail anywhere
//	part.go      sharded saves: a part per rank, then the manifest
//	list.go      the checkpoints of a folder, newest first
//	verify.go    do the files match?
//	pin.go       checkpoints that stay
//	retain.go    which ones may go, and how
//	removal.go   a pin and a removal at the same time
package manifest
