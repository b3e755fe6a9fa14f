package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// If the variable trainerVariable names a dataset, the test binary acts as its trainer: a very small
// client of the socket (docs/PROTOCOL.md) in another language than Python. At the end it prints
// "rows N sum S", where S is the sum of the column number.
const trainerVariable = "HEADRACE_TEST_TRAINER"

// HEADRACE_TEST_MODE makes the trainer behave in another way.
const (
	modeVariable = "HEADRACE_TEST_MODE"
	modeHang     = "hang" // attach and take batches, but never step and never end
	modeBatch    = 16     // rows of a batch
	modeCredits  = 4      // batches
	modeFail     = "fail" // exit with code 3 at once
)

func trainer() int {
	if os.Getenv(modeVariable) == modeFail {
		fmt.Println("failing as asked")
		return 3
	}
	rows, sum, err := train(os.Getenv(trainerVariable), os.Getenv("HEADRACE_AGENT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "trainer:", err)
		return 1
	}
	fmt.Printf("rows %d sum %d\n", rows, sum)
	return 0
}

type wire struct {
	net.Conn
	r *bufio.Reader
	b []byte
}

func dialAgent(socket string) (*wire, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, r: bufio.NewReader(c)}, nil
}

// expect reads control messages until one of the type t comes, and returns it. It answers each PING.
func (w *wire) expect(t frame.Type) ([]byte, error) {
	for {
		h, payload, err := frame.ReadControl(w.r, &w.b)
		if err != nil {
			return nil, err
		}
		switch h.Type {
		case t:
			return payload, nil
		case frame.TypeError:
			e, err := frame.Decode[frame.Error](h.Type, payload)
			return nil, errors.Join(&e, err)
		case frame.TypeFenced, frame.TypeQuit:
			return nil, fmt.Errorf("%v: %s", h.Type, payload)
		}
	}
}

func train(dataset, socket string) (rows, sum int64, err error) {
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	world, _ := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	control, err := dialAgent(socket)
	if err != nil {
		return 0, 0, err
	}
	defer control.Close()
	incarnation := frame.Incarnation(os.Getpid())
	hello := frame.Hello{Protocol: frame.Protocol, Client: "headrace-test", Rank: uint32(rank), WorldSize: uint32(max(world, 1)),
		Incarnation: incarnation, PID: int32(os.Getpid())}
	if err := frame.WriteControl(control, frame.TypeHello, 0, 0, hello); err != nil {
		return 0, 0, err
	}
	if _, err := control.expect(frame.TypeWelcome); err != nil {
		return 0, 0, err
	}
	open := frame.Open{Dataset: dataset, Rows: modeBatch, Ack: frame.AckStep, Track: true}
	if err := frame.WriteControl(control, frame.TypeOpen, 1, 0, open); err != nil {
		return 0, 0, err
	}
	payload, err := control.expect(frame.TypeOpened)
	if err != nil {
		return 0, 0, err
	}
	opened, err := frame.Decode[frame.Opened](frame.TypeOpened, payload)
	if err != nil {
		return 0, 0, err
	}
	return consume(control, socket, incarnation, opened)
}

func consume(control *wire, socket string, incarnation frame.Incarnation, opened frame.Opened) (rows, sum int64, err error) {
	fields, err := opened.Schema.Fields()
	if err != nil {
		return 0, 0, err
	}
	layout, err := frame.NewLayout(fields)
	if err != nil {
		return 0, 0, err
	}
	data, err := dialAgent(socket)
	if err != nil {
		return 0, 0, err
	}
	defer data.Close()
	if err := frame.WriteControl(data, frame.TypeAttach, 1, 0, frame.Attach{Incarnation: incarnation}); err != nil {
		return 0, 0, err
	}
	if err := frame.WriteControl(data, frame.TypeCredit, 1, modeCredits, nil); err != nil {
		return 0, 0, err
	}
	var buf []byte
	var through uint32
	for {
		h, err := frame.ReadHeader(data.r)
		if err != nil {
			return rows, sum, err
		}
		if err := frame.ReadPayload(data.r, h, &buf); err != nil {
			return rows, sum, err
		}
		switch h.Type {
		case frame.TypeEnd:
			return rows, sum, frame.WriteControl(control, frame.TypeBye, 0, 0, nil)
		case frame.TypeError:
			e, err := frame.Decode[frame.Error](h.Type, buf)
			return rows, sum, errors.Join(&e, err)
		case frame.TypeFrame:
		default:
			continue
		}
		f, err := frame.Read(layout, buf)
		if err != nil {
			return rows, sum, err
		}
		rows += int64(f.Rows)
		for _, v := range frame.View[int64](f.Columns[1].Values) {
			sum += v
		}
		if os.Getenv(modeVariable) == modeHang {
			fmt.Println("hanging with", f.Rows, "rows")
			time.Sleep(time.Hour) // it is killed before; the Go runtime would report an empty select as a deadlock
		}
		for range f.Batches {
			through++
			step := int64(through)
			if err := frame.WriteControl(control, frame.TypeStep, 1, 0, frame.Step{Step: &step, Batches: 1, Through: through}); err != nil {
				return rows, sum, err
			}
		}
		if err := frame.WriteControl(data, frame.TypeCredit, 1, uint32(f.Batches), nil); err != nil {
			return rows, sum, err
		}
	}
}
