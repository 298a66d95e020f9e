//! From the regions of a file to its lines, in the way of llvm-cov (`SegmentBuilder` and `LineCoverageStats` in LLVM's CoverageMapping.cpp):
//! regions nest; where one begins or ends, a segment with another count begins; a line has the count that it begins with, or the largest
//! of the regions that begin in it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A line and a column.
pub(super) type Place = (u32, u32);

/// What a region is. Of regions at the same place the first in this order holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Code,
    /// A macro or an included file.
    Expansion,
    /// Left out by the preprocessor.
    Skipped,
    /// What lies between regions: its count is that of a line in which no region begins.
    Gap,
}

/// A stretch of source with a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub start: Place,
    pub end: Place,
    pub kind: Kind,
    pub count: u64,
}

/// From its place to that of the next one, source has a count.
#[derive(Clone, Copy)]
struct Segment {
    place: Place,
    count: Option<u64>,
    /// Whether a region begins here, and does not go on after one that is nested in it.
    entry: bool,
    gap: bool,
}

/// The lines that have code, and whether they ran.
pub(super) fn lines(mut regions: Vec<Region>) -> BTreeMap<u32, bool> {
    regions.sort_by_key(|region| (region.start, Reverse(region.end), region.kind));
    let mut merged: Vec<Region> = Vec::with_capacity(regions.len());
    for region in regions {
        match merged.last_mut() {
            Some(last) if (last.start, last.end) == (region.start, region.end) => {
                // A macro within a macro is told twice; what counts is what is told of the same kind.
                if last.kind == region.kind {
                    last.count = last.count.saturating_add(region.count);
                }
            }
            _ => merged.push(region),
        }
    }
    let mut segments = Segments::default();
    segments.build(&merged);
    of_segments(&segments.list)
}

#[derive(Default)]
struct Segments<'r> {
    list: Vec<Segment>,
    /// Regions that have begun and not ended, the innermost last.
    active: Vec<&'r Region>,
}

impl<'r> Segments<'r> {
    fn build(&mut self, regions: &'r [Region]) {
        for (index, region) in regions.iter().enumerate() {
            let next = regions.get(index + 1);
            if self.active.iter().any(|active| active.end <= region.start) {
                let ended = |active: &&&Region| active.end <= region.start;
                let completed: Vec<&Region> = self.active.iter().filter(ended).copied().collect();
                self.active.retain(|active| active.end > region.start);
                self.complete(completed, Some(region.start));
            }
            let entry = region.kind != Kind::Gap;
            if region.start == region.end {
                // An empty region has the count of what it lies in.
                let skipped = next.is_none() || region.kind == Kind::Skipped;
                let around = self.active.last().copied();
                self.begin(around.unwrap_or(region), region.start, entry, skipped);
                if let Some(around) = around.filter(|_| skipped) {
                    self.begin(around, region.start, false, false);
                }
                continue;
            }
            if next.is_none_or(|next| next.start != region.start) {
                self.begin(region, region.start, entry, false);
            }
            self.active.push(region);
        }
        let completed = std::mem::take(&mut self.active);
        if !completed.is_empty() {
            self.complete(completed, None);
        }
    }

    /// Some regions have ended before `place`, where the next one begins; `None`: all have.
    fn complete(&mut self, mut completed: Vec<&'r Region>, place: Option<Place>) {
        completed.sort_by_key(|region| region.end);
        for index in 1..completed.len() {
            let at = completed[index - 1].end;
            if Some(at) == place {
                break;
            }
            let end = completed[index].end;
            if at == end {
                continue;
            }
            // The innermost of those that end at the same place.
            let last = completed[index..].iter().rev().find(|region| region.end == end);
            self.begin(last.unwrap_or(&completed[index]), at, false, false);
        }
        let Some(last) = completed.last().filter(|last| Some(last.end) != place) else { return };
        match self.active.last().copied() {
            Some(around) => self.begin(around, last.end, false, false),
            // Nothing counts between functions.
            None => self.begin(last, last.end, false, true),
        }
    }

    fn begin(&mut self, region: &Region, place: Place, entry: bool, skipped: bool) {
        let count = (!skipped && region.kind != Kind::Skipped).then_some(region.count);
        if let Some(last) = self.list.last()
            && !entry
            && !skipped
            && last.count == count
            && !last.entry
        {
            return;
        }
        self.list.push(Segment { place, count, entry, gap: region.kind == Kind::Gap });
    }
}

fn of_segments(segments: &[Segment]) -> BTreeMap<u32, bool> {
    let mut lines = BTreeMap::new();
    let mut wrapped: Option<&Segment> = None;
    let mut rest = segments;
    while let Some(first) = rest.first() {
        let line = first.place.0;
        let (own, others) = rest.split_at(rest.iter().take_while(|segment| segment.place.0 == line).count());
        let begun =
            own.iter().filter(|segment| segment.entry && !segment.gap).filter_map(|segment| segment.count);
        let begun: Option<u64> = begun.max();
        let skipped = first.entry && first.count.is_none();
        let around = wrapped.and_then(|segment| segment.count);
        if begun.is_some() || !skipped && around.is_some() {
            lines.insert(line, begun.max(around).unwrap_or(0) > 0);
        }
        wrapped = own.last();
        let next = others.first().map_or(line, |segment| segment.place.0);
        if let Some(count) = wrapped.and_then(|segment| segment.count) {
            lines.extend((line + 1..next).map(|line| (line, count > 0)));
        }
        rest = others;
    }
    lines
}
