// Package access decides which caller may do what at a master or an agent. A caller
// proves a token or shows a certificate; either gives it roles. The tables in this package
// say which role each call and each page needs. A call that is not in the table is refused to
// everybody. A page that is not in the table needs the role operator.
//
// It opens no connection: link exchanges the proofs, and master and cmd ask for decisions.
//
//	role.go    roles, and sets of them
//	table.go   which role a call or a page needs
//	token.go   tokens in files: making and reading them
//	book.go    the tokens and the certificate names that one process accepts
//	calls.go   gRPC calls by that table
//	pages.go   HTTP pages by that table
//	strangers.go  callers of pages that have shown nothing
package access
