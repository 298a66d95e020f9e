package cart

import "testing"

func TestTotal(t *testing.T) {
	c := New()
	c.Add("a", 3)
	if c.Total() != 3 {
		t.Fatal(c.Total())
	}
}
