mod log;

use log::Log;

fn main() {
    let mut log = Log::default();
    for word in std::env::args() {
        log.push(word.len() as u64);
    }
    let total = log.total();
    if total > 1_000_000 {
        println!("too much");
    }
    println!("{total} {}", largest(&[1, 2, 3]) + largest(&[1.5, 0.5]) as i32);
}

fn largest<T: PartialOrd + Copy>(values: &[T]) -> T {
    let mut most = values[0];
    for value in values {
        if *value > most {
            most = *value;
        }
    }
    most
}
