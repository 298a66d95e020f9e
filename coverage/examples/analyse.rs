//! Says what can be covered in a program, how long the analysis took, and what memory it needed: `analyse CHECKOUT PROGRAM [UNIT]`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a tool for the host

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bloodhound_coverage::{Checkout, HostFiles, Rules, Unit, analyse};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [checkout, path, rest @ ..] = &arguments[..] else {
        return Err("analyse CHECKOUT PROGRAM [lines|functions|blocks] [places]".into());
    };
    let units = [Unit::Lines, Unit::Functions, Unit::Blocks];
    let unit = units.into_iter().find(|unit| rest.iter().any(|word| word == unit.name()));
    let places = rest.iter().any(|word| word == "places");
    let begin = Instant::now();
    let rules =
        Rules { unit, places, checkout: Arc::new(Checkout::scan(Path::new(checkout))?), ..Rules::default() };
    println!("checkout: {} files, {:?}", rules.checkout.files().len(), begin.elapsed());
    let bytes = std::fs::read(path)?;
    let begin = Instant::now();
    let program = analyse(path, &bytes, &HostFiles::default(), &rules);
    println!("analysis of {} MB: {:?}", bytes.len() >> 20, begin.elapsed());
    match program {
        Ok(program) => {
            let (points, items) = (program.points.len(), program.items.len());
            let functions = program.functions.iter().filter(|function| function.counted).count();
            println!(
                "{points} points, {items} {}, {functions} functions in {} files",
                program.unit,
                program.files.len()
            );
            program.notes.iter().for_each(|note| println!("note: {note}"));
        }
        Err(reason) => println!("not measured: {reason}"),
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    Ok(())
}
