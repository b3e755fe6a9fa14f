// Package archtest keeps the shape of the house: which package may import which
// of ours (docs/ARCHITECTURE.md, Import rules), the rooms of the core, file maps,
// and names: those that say nothing, kinds of sources, retired words.
package archtest
