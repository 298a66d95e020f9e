package main

import (
	"fmt"
	"os"

	"example.org/shop/cart"
)

func main() {
	c := cart.New()
	for i, name := range os.Args {
		c.Add(name, i)
	}
	if c.Total() > 1000 {
		fmt.Println("expensive")
	}
	fmt.Println(c.Total())
}
