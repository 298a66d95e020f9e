//! How long it takes until an image that is in the cache can be used: `cargo run --release --example image_costs -- NAME|FILE`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a measurement of the host

use std::time::Instant;

use bloodhound_images::{EngineChoice, ImageSource, Options, PullPolicy, Resolver, Store};

fn main() -> Result<(), bloodhound_images::Error> {
    for name in std::env::args().skip(1) {
        for _ in 0..3 {
            let begin = Instant::now();
            let store = Store::open(Store::default_dir()?)?;
            let resolver = Resolver::new(store, Options { engine: EngineChoice::Off, ..Options::default() });
            let path = std::path::PathBuf::from(&name);
            let source =
                if path.exists() { ImageSource::Archive(path) } else { ImageSource::Reference(name.clone()) };
            let image = resolver.resolve(&source, PullPolicy::Missing)?;
            let time = begin.elapsed();
            println!(
                "{name}: {} names, {} layers: {time:?}",
                image.root.entries(),
                image.root.layers().count()
            );
        }
    }
    Ok(())
}
