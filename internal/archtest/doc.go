// Package archtest keeps the shape of the house: which package may import which
// of ours (docs/ARCHITECTURE.md, Import rules), and names that say nothing.
package archtest
