// Package stepfile reads the step files of trainers: files in shared memory in which the
// client of a `shared` model writes down what its process has received and stepped
// (connectors/python, _stepfile.py). They outlive that process and its agent. The agent of
// the node reads them when the process has ended, asserts its leases again, and tells the
// master what was stepped.
//
// The rules:
//
//   - The trainer writes, nobody else does. It makes no system call for a step and syncs
//     nothing. A step file survives processes, not the node.
//
//   - A reader believes only what a checksum covers, and only frames that follow each other
//     without a gap. A part that a kill has torn was not stepped: a frame is written before a
//     batch of it is yielded, and a step before step() returns.
//
//   - A process holds a POSIX lock of its step files. A file without that lock is of a process
//     that has ended, and nothing in it changes any more.
//
//   - A step file is removed when the master has answered everything in it.
//
//     folder.go  where an agent's step files lie; which of them are of ended processes
//     sweep.go   folders of agents that never came again
//     read.go    one step file: its layout, its checks
//     spans.go   the pieces of leases that a batch is made of
package stepfile
