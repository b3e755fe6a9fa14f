// Package advice makes errors that say what to do. Each has a kind, so that
// cmd/headrace can choose the exit code, and a hint, which it prints below the error.
//
//	advice.go  the error, its kinds, and how to make one
//	master.go  a master's gRPC error in words for a person
package advice
