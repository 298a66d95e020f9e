#[derive(Default)]
pub struct Log {
    entries: Vec<u64>,
}

impl Log {
    pub fn push(&mut self, entry: u64) {
        if entry == 0 {
            return;
        }
        self.entries.push(entry);
    }

    pub fn total(&self) -> u64 {
        self.entries.iter().map(|entry| entry + 1).sum()
    }
}
