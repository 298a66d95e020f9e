'use strict';
// A shop, for reports of Node's own coverage: with a character that has two UTF-16 units, 😀.
function price(name) {
  if (name === 'never') {
    return 0;
  }
  return name.length;
}

function unused() {
  return 1;
}

const prices = process.argv.map((name) => price(name));
console.log(prices.length);
