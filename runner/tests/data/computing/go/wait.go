// Goroutines that wait for each other by computing.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

var (
	flag   atomic.Bool
	plain  bool
	rounds int
)

func waitAtomic() {
	for !flag.Load() {
		rounds++
	}
}

//go:noinline
func isSet() bool { return plain }

func waitPlain() {
	for !isSet() {
		rounds++
	}
}

func main() {
	go func() {
		time.Sleep(100 * time.Millisecond)
		plain = true
		flag.Store(true)
	}()
	if len(os.Args) > 1 && os.Args[1] == "plain" {
		waitPlain()
	} else if len(os.Args) > 1 && os.Args[1] == "idle" {
		for !flag.Load() {
		}
	} else {
		waitAtomic()
	}
	fmt.Println("done")
	fmt.Fprintln(os.Stderr, rounds, "rounds")
}
