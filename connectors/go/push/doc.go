// Package push is the Go client for pushed records (docs/LANDING.md): it puts records
// into a dataset whose source is `landing`, in transactions that come once or not at all.
//
//	p, err := push.Open(ctx, conn, "clicks")
//	t := p.Begin("orders-2026-01-31")            // the same id again adds nothing
//	err = t.Push(ctx, push.Record{Value: line})  // staged in chunks
//	done, err := t.Commit(ctx)                   // visible, all or nothing
//
// A call waits and tries again while the master is away or the dataset is full, until its
// context ends. Then the same call can be made again with another context: the transaction
// keeps every record that Push has accepted. If a chunk cannot be stored for another reason,
// each later call of the transaction returns that error.
//
// A commit of many chunks may take minutes. The package sets no time limit, so the context is
// the only one. Dial the connection with keepalive (a probe every 10 s or less often): without
// it a call does not notice that the master's machine is gone.
//
// After a crash of the producer, begin a transaction with the same id and push the same
// records: if it was committed, Commit says so. Landed says it before anything is sent.
//
//	pusher.go       a dataset
//	transaction.go  records, chunks, commit
package push
