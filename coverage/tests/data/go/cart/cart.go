package cart

import "sync"

// Cart is what a customer has chosen.
type Cart struct {
	mu    sync.Mutex
	items map[string]int
}

// New returns an empty cart.
func New() *Cart {
	return &Cart{items: map[string]int{}}
}

// Add adds an item.
func (c *Cart) Add(name string, price int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if price < 0 {
		return
	}
	c.items[name] += price
}

// Total is the sum of all prices.
func (c *Cart) Total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, price := range c.items {
		sum += price
	}
	return sum
}
