//! `bloodhound image`: the cache of container images.
//!
//! Everything is done by `bloodhound_images`; this module reads arguments and prints results. `progress` has the bars. Which
//! registries and engines are asked, and how, `crate::images` knows, for these commands and for those that run services.

mod progress;

use std::io::Read;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use bloodhound_images::{Digest, Error, ErrorKind, Origin, Record, Reference, Removed, Resolver};
use serde_json::json;

pub use progress::Bars;

use crate::images::{self, ImageArgs};
use crate::output::{self, Format};
use crate::session::Failure;
use crate::{cli, exit, run};

/// Arguments of `image`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Subcommands of `image`.
#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the images of the cache
    Ls(Ls),
    /// Bring images from their registries into the cache
    Pull(Pull),
    /// Add the images of an archive (docker save, OCI layout) to the cache
    Load(Load),
    /// Remove images from the cache
    Rm(Rm),
    /// Remove what no image of the cache needs, or old images
    Prune(Prune),
    /// Examine everything in the cache: digests, indices, records
    Verify(Place),
}

/// Where the cache is.
#[derive(clap::Args, Debug)]
struct Place {
    #[command(flatten)]
    images: ImageArgs,
}

/// Arguments of `image ls`.
#[derive(clap::Args, Debug)]
struct Ls {
    #[command(flatten)]
    images: ImageArgs,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Arguments of `image pull`.
#[derive(clap::Args, Debug)]
struct Pull {
    #[command(flatten)]
    images: ImageArgs,
    /// Names of images, as in a compose file
    #[arg(required = true, value_name = "IMAGE")]
    names: Vec<String>,
}

/// Arguments of `image load`.
#[derive(clap::Args, Debug)]
struct Load {
    #[command(flatten)]
    images: ImageArgs,
    /// Archives, or directories with an OCI layout; `-`: an archive on standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Arguments of `image rm`.
#[derive(clap::Args, Debug)]
struct Rm {
    #[command(flatten)]
    images: ImageArgs,
    /// Names, or the first digits of an image's id
    #[arg(required = true, value_name = "IMAGE")]
    names: Vec<String>,
}

/// Arguments of `image prune`.
#[derive(clap::Args, Debug)]
struct Prune {
    #[command(flatten)]
    images: ImageArgs,
    /// Remove all images
    #[arg(long)]
    all: bool,
    /// Remove the images that were fetched longer ago than this (for example 720h)
    #[arg(long, value_parser = cli::duration, value_name = "DURATION")]
    older_than: Option<u64>,
}

/// `bloodhound image`.
pub fn run(args: &Args) -> u8 {
    let done = match &args.command {
        Command::Ls(args) => ls(args),
        Command::Pull(args) => pull(args),
        Command::Load(args) => load(args),
        Command::Rm(args) => rm(args),
        Command::Prune(args) => prune(args),
        Command::Verify(args) => verify(args),
    };
    done.unwrap_or_else(|failure| run::fail(&failure))
}

/// The exit code of an error: what the user wrote, or what is there.
pub fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Usage => Failure::usage(error.to_string()),
        _ => Failure::environment(error.to_string()),
    }
}

fn ls(args: &Ls) -> Result<u8, Failure> {
    let resolver = images::resolver(&args.images)?;
    let records = resolver.store.records().map_err(|e| failure(&e))?;
    if args.format == Format::Json {
        output::print_json(&json!({
            "schema": "bloodhound.images/v1",
            "cache": resolver.store.dir(),
            "images": records.iter().map(json_of).collect::<Vec<_>>(),
        }));
        return Ok(exit::PASS);
    }
    let mut rows = vec![["IMAGE", "ID", "SIZE", "FROM", "FETCHED"].map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        [familiar(&record.reference), record.config.short(), size(record.size), origin(record), age(record)]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        output::print(&format!("{}\n", cells.join("  ").trim_end()));
    }
    Ok(exit::PASS)
}

fn json_of(record: &Record) -> serde_json::Value {
    json!({
        "reference": record.reference,
        "id": record.config,
        "digest": record.manifest,
        "index": record.index,
        "layers": record.layers,
        "size": record.size,
        "from": origin(record),
        "fetched": record.stored,
    })
}

fn pull(args: &Pull) -> Result<u8, Failure> {
    let resolver = images::resolver(&args.images)?;
    for name in &args.names {
        told(&resolver.pull(name).map_err(|e| failure(&e))?);
    }
    Ok(exit::PASS)
}

fn load(args: &Load) -> Result<u8, Failure> {
    let resolver = images::resolver(&args.images)?;
    for file in &args.files {
        let records = if file.as_os_str() == "-" {
            let stdin: Box<dyn Read> = Box::new(std::io::stdin().lock());
            resolver.load_stream(stdin)
        } else {
            resolver.load(file)
        };
        records.map_err(|e| failure(&e))?.iter().for_each(told);
    }
    Ok(exit::PASS)
}

/// One line for an image that is in the cache now.
fn told(record: &Record) {
    output::print(&format!("{} {}\n", familiar(&record.reference), record.manifest));
}

fn rm(args: &Rm) -> Result<u8, Failure> {
    let resolver = images::resolver(&args.images)?;
    let mut sum = Removed::default();
    for name in &args.names {
        for reference in meant(&resolver, name)? {
            if let Some(removed) = resolver.store.remove(&reference).map_err(|e| failure(&e))? {
                sum.images += removed.images;
                sum.layers += removed.layers;
                sum.bytes += removed.bytes;
            }
        }
    }
    removed(&sum);
    Ok(exit::PASS)
}

/// The records that a user means.
fn meant(resolver: &Resolver, name: &str) -> Result<Vec<String>, Failure> {
    let records = resolver.store.records().map_err(|e| failure(&e))?;
    let complete = Reference::parse(name).ok();
    let named = |record: &&Record| {
        let same = |reference: &Reference| reference.to_string() == record.reference;
        record.reference == name
            || complete.as_ref().is_some_and(|reference| {
                same(reference) || reference.alternatives().as_ref().is_some_and(same)
            })
    };
    let by_name: Vec<String> = records.iter().filter(named).map(|record| record.reference.clone()).collect();
    if !by_name.is_empty() {
        return Ok(by_name);
    }
    let digits = name.strip_prefix("sha256:").unwrap_or(name);
    let begins = |digest: &Digest| digits.len() >= 6 && digest.hex().starts_with(digits);
    let by_id: Vec<&Record> =
        records.iter().filter(|record| begins(&record.config) || begins(&record.manifest)).collect();
    if by_id.iter().any(|record| record.config != by_id[0].config) {
        return Err(Failure::usage(format!("{name} is the beginning of several ids: write more digits")));
    }
    if by_id.is_empty() {
        let place = resolver.store.dir().display();
        return Err(Failure::usage(format!("there is no image {name} in the cache ({place})")));
    }
    Ok(by_id.iter().map(|record| record.reference.clone()).collect())
}

fn prune(args: &Prune) -> Result<u8, Failure> {
    let resolver = images::resolver(&args.images)?;
    let now = seconds();
    let goes = |record: &Record| {
        let old = |ns: u64| now.saturating_sub(record.stored) >= ns / 1_000_000_000;
        args.all || args.older_than.is_some_and(old)
    };
    removed(&resolver.store.prune(&goes).map_err(|e| failure(&e))?);
    Ok(exit::PASS)
}

fn removed(removed: &Removed) {
    let Removed { images, layers, bytes } = removed;
    output::print(&format!("removed: {images} names, {layers} layers, {}\n", size(*bytes)));
}

fn verify(args: &Place) -> Result<u8, Failure> {
    let resolver = images::resolver(&args.images)?;
    let wrong = resolver.store.verify().map_err(|e| failure(&e))?;
    if wrong.is_empty() {
        output::print(&format!("{}: nothing is wrong\n", resolver.store.dir().display()));
        return Ok(exit::PASS);
    }
    Err(Failure::environment(format!("the image cache is damaged:\n  {}", wrong.join("\n  "))))
}

/// A name as users write it; an archive's path as it is.
fn familiar(reference: &str) -> String {
    match reference.starts_with("file:") {
        true => reference.to_owned(),
        false => Reference::parse(reference).map_or_else(|_| reference.to_owned(), |name| name.familiar()),
    }
}

fn origin(record: &Record) -> String {
    match &record.origin {
        Origin::Registry => "registry".to_owned(),
        Origin::Engine => "engine".to_owned(),
        Origin::Build => "build".to_owned(),
        Origin::File { path, .. } => path.clone(),
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn age(record: &Record) -> String {
    let seconds = seconds().saturating_sub(record.stored);
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
    }
}
