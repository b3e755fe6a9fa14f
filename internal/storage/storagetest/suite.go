// Package storagetest is the suite that every storage.Store passes.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headrace/headrace/internal/storage"
)

// Run gives each test a Store that is empty.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	for name, test := range map[string]func(*testing.T, storage.Store){
		"AnObjectIsReadAsItWasPut":          readAsPut,
		"AnEmptyObjectIsAnObject":           empty,
		"OfTwoThatPutANewObjectOneWins":     oneWins,
		"AListingIsInOrderAndCanGoOn":       listing,
		"AKeyCannotLeaveTheStore":           keys,
		"AContextThatHasEndedStopsTheCalls": ended,
		"LargeObjectsComeWhole":             large,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func readAsPut(t *testing.T, f storage.Store) {
	ctx := t.Context()
	if err := f.Put(ctx, "a/b/c-1", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, -1, "0123456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 1, ""}, {50, -1, ""}, {2, 0, ""}, {4, -1, "456789"}} {
		got, err := f.Get(ctx, "a/b/c-1", c.offset, c.length)
		if err != nil || string(got) != c.want {
			t.Errorf("Get(%d, %d) = %q, %v; want %q", c.offset, c.length, got, err, c.want)
		}
	}
	if o, err := f.Stat(ctx, "a/b/c-1"); err != nil || o.Size != 10 {
		t.Errorf("Stat = %+v, %v", o, err)
	}
	if err := f.Put(ctx, "a/b/c-1", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, _ := f.Get(ctx, "a/b/c-1", 0, -1); string(got) != "new" {
		t.Errorf("after a second Put: %q", got)
	}
	if err := f.Delete(ctx, "a/b/c-1", "never/there"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(ctx, "a/b/c-1", 0, -1); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("after Delete: %v", err)
	}
	if _, err := f.Get(ctx, "a/b/c-1", 3, 2); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a range after Delete: %v", err)
	}
	if _, err := f.Stat(ctx, "a/b"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Stat of a folder: %v", err)
	}
}

func empty(t *testing.T, f storage.Store) {
	if err := f.PutNew(t.Context(), "e/nothing", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Get(t.Context(), "e/nothing", 0, -1); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	if o, err := f.Stat(t.Context(), "e/nothing"); err != nil || o.Size != 0 {
		t.Errorf("%+v, %v", o, err)
	}
}

func oneWins(t *testing.T, f storage.Store) {
	ctx := t.Context()
	var wins atomic.Int32
	var won atomic.Value
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := fmt.Sprintf("writer %d", i)
			switch err := f.PutNew(ctx, "x/one", []byte(text)); {
			case err == nil:
				wins.Add(1)
				won.Store(text)
			case !errors.Is(err, storage.ErrExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d won", wins.Load())
	}
	if got, err := f.Get(ctx, "x/one", 0, -1); err != nil || string(got) != won.Load() {
		t.Fatalf("%q, %v; %v won", got, err, won.Load())
	}
	if all, err := f.List(ctx, "x/", "", 0); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

func listing(t *testing.T, f storage.Store) {
	ctx := t.Context()
	keys := []string{"p/a-b", "p/a/1", "p/a/2", "p/b", "q/1"}
	for _, k := range keys {
		if err := f.Put(ctx, k, bytes.Repeat([]byte("x"), len(k))); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	after := ""
	for {
		some, err := f.List(ctx, "p/", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range some {
			got = append(got, o.Key)
			if o.Size != int64(len(o.Key)) {
				t.Errorf("%+v", o)
			}
			after = o.Key
		}
		if len(some) < 2 {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(keys[:4]) {
		t.Errorf("listed %v, want %v", got, keys[:4])
	}
	if some, err := f.List(ctx, "nowhere/", "", 0); err != nil || len(some) != 0 {
		t.Errorf("of a prefix without objects: %v, %v", some, err)
	}
	if all, err := f.List(ctx, "", "", 0); err != nil || len(all) != len(keys) {
		t.Errorf("of all: %v, %v", all, err)
	}
}

func keys(t *testing.T, f storage.Store) {
	ctx := t.Context()
	for _, key := range []string{"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".hidden", "a/.b", "a b", "a\x00"} {
		if err := f.Put(ctx, key, nil); err == nil {
			t.Errorf("Put(%q) works", key)
		}
		if _, err := f.Get(ctx, key, 0, 1); err == nil {
			t.Errorf("Get(%q) works", key)
		}
		if err := f.Delete(ctx, key); err == nil {
			t.Errorf("Delete(%q) works", key)
		}
	}
}

func ended(t *testing.T, f storage.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Put(ctx, "c/1", []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	if _, err := f.Get(ctx, "c/1", 0, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("Get: %v", err)
	}
}

func large(t *testing.T, f storage.Store) {
	data := make([]byte, 33<<20+5) // three parts of S3
	for i := range data {
		data[i] = byte(i * 2654435761 >> 13)
	}
	if err := f.PutNew(t.Context(), "l/large", data); err != nil {
		t.Fatal(err)
	}
	if err := f.PutNew(t.Context(), "l/large", data); !errors.Is(err, storage.ErrExists) {
		t.Errorf("a second PutNew: %v", err)
	}
	got, err := f.Get(t.Context(), "l/large", 0, -1)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if got, err := f.Get(t.Context(), "l/large", 16<<20-3, 9); err != nil || !bytes.Equal(got, data[16<<20-3:][:9]) {
		t.Errorf("over the border of two parts: %v, %v", got, err)
	}
}
