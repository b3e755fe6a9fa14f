// Package sources says what a source is: a place that records live in. It holds
// the words that every part of Headrace shares about where a record is
// (Position, Range, Segment) and the interfaces an adapter implements. It
// imports nothing of ours and nothing but the standard library.
//
// Adapters live one folder each below it; only cmd/headrace and tests import
// them. Every adapter passes the conformance suite in sourcetest.
package sources
