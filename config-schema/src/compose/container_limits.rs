//! What a container may use: the decoders of `storage_opt` and `oom_score_adj`.

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::tree::Node;

use super::{environment, mounts};

/// The `size` of `storage_opt`, in bytes; other options are those of a storage driver.
pub(super) fn storage(ctx: &mut Ctx, node: &Node, path: &str) -> Option<u64> {
    let options = environment::pairs(ctx, node, path)?;
    let (_, size) = options.into_iter().find(|(name, _)| name == "size")?;
    mounts::bytes(ctx, &size, node.span, &format!("{path}.size"))
}

/// oom_score_adj of proc(5): -1000 to 1000.
pub(super) fn oom_score_adj(ctx: &mut Ctx, node: &Node, path: &str) -> Option<i16> {
    let text = ctx.text(node, path)?;
    let number = text.parse().ok().filter(|n| (-1000..=1000).contains(n));
    if number.is_none() {
        let text = format!("`{path}` must be a whole number from -1000 to 1000, not {}", quoted(&text));
        ctx.error(Code::OutOfRange, node.span, text).help(
            "processes with a higher number are killed first when there is no memory left; -1000 is never",
        );
    }
    number
}
