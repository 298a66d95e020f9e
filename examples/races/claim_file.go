// Go: main and a goroutine look whether a file is there and make it if not, in two calls. `-ldflags=-X=main.variant=fixed`
// gives the repaired variant.
//
// Race (check then act on a file): os.Stat in one goroutine and os.WriteFile in the other one. It fails if a goroutine's thread is
// preempted between them and the other one makes the file: both take themselves for the only one.
package main

import (
	"fmt"
	"os"
	"runtime"
)

// Set when the program is linked.
var variant string

func claim(path string, claimed chan<- int) {
	// A thread of its own, so that the system and not Go's scheduler says when it goes on.
	runtime.LockOSThread()
	if variant == "fixed" {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0600)
		if err == nil {
			file.Close()
			claimed <- 1
		} else {
			claimed <- 0
		}
		return
	}
	if _, err := os.Stat(path); err == nil {
		claimed <- 0
		return
	}
	os.WriteFile(path, []byte("mine"), 0600)
	claimed <- 1
}

func main() {
	runtime.GOMAXPROCS(2)
	path := fmt.Sprintf("/tmp/race-claim-file-%d", os.Getpid())
	os.Remove(path)
	claimed := make(chan int, 2)
	go claim(path, claimed)
	claim(path, claimed)
	sum := <-claimed + <-claimed
	os.Remove(path)
	if sum != 1 {
		fmt.Fprintf(os.Stderr, "%d goroutines have the file\n", sum)
		os.Exit(1)
	}
}
