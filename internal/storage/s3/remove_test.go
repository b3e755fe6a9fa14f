//go:build s3

package s3

import (
	"errors"
	"net/http"
	"testing"

	"github.com/headrace/headrace/internal/storage"
)

func TestAnObjectIsRemovedIfItIsTheOneThatIsMeant(t *testing.T) {
	b, ctx := open(t, config()), t.Context()
	if err := b.Put(ctx, "k", []byte("one")); err != nil {
		t.Fatal(err)
	}
	tag := tagOf(t, b, "k")
	if err := b.Put(ctx, "k", []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(ctx, "k", tag); !errors.Is(err, storage.ErrChanged) {
		t.Errorf("removing an object with another tag: %v", err)
	}
	if got, err := b.Get(ctx, "k", 0, -1); err != nil || string(got) != "two" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := b.Remove(ctx, "k", tagOf(t, b, "k")); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(ctx, "k", tag); err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("removing an object that does not exist: %v", err)
	}
}

// While the request to remove an object is on its way, another object takes its name. The request has the ETag as a
// condition, so the other object stays.
func TestAnObjectThatIsReplacedBeforeItsRemovalStays(t *testing.T) {
	direct, ctx := open(t, config()), t.Context()
	replaced := false
	c := config()
	c.Endpoint = between(t, func(r *http.Request) int {
		if r.Method == http.MethodDelete && !replaced {
			replaced = true
			if err := direct.Put(ctx, "k", []byte("two")); err != nil {
				t.Error(err)
			}
		}
		return 0
	}, nil)
	b, err := Open(c, direct.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := direct.Put(ctx, "k", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(ctx, "k", tagOf(t, direct, "k")); !replaced || !errors.Is(err, storage.ErrChanged) {
		t.Errorf("replaced %t: %v", replaced, err)
	}
	if got, err := direct.Get(ctx, "k", 0, -1); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
}

// If a service does not support the condition, it is asked without it.
func TestAServiceWithoutConditionsOfDeletionsDeletes(t *testing.T) {
	conditions := 0
	c := config()
	c.Endpoint = between(t, func(r *http.Request) int {
		if r.Method == http.MethodDelete && r.Header.Get("If-Match") != "" {
			conditions++
			return http.StatusNotImplemented
		}
		return 0
	}, nil)
	b, ctx := open(t, c), t.Context()
	if err := b.Put(ctx, "k", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(ctx, "k", tagOf(t, b, "k")); err != nil || conditions == 0 {
		t.Errorf("after %d conditions: %v", conditions, err)
	}
	if _, err := b.Head(ctx, "k"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("got the error %v, want %v", err, storage.ErrNotFound)
	}
}
