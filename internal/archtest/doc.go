// Package archtest has tests of the whole repository's structure: which of our packages a
// package may import (docs/ARCHITECTURE.md, Import rules), the rooms of the core, the file
// maps in package comments, and names (packages called "util", kinds of sources outside
// their adapters, retired words).
package archtest
