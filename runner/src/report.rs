//! Text about a world for people.

use bloodhound_kernel::task::TaskState;
use bloodhound_sim::World;

/// What every sleeping task waits for.
pub fn waiting(world: &World) -> String {
    let mut out = String::new();
    for (id, node) in &world.nodes {
        for task in node.tasks.values() {
            let TaskState::Blocked(wait) = &task.state else { continue };
            let call = bloodhound_abi::table::info(task.regs.orig_rax).map_or("?", |i| i.name);
            out.push_str(&format!(
                "  node {} task {} ({}): {call}, waits for {:?}\n",
                id.0,
                task.tid.0,
                String::from_utf8_lossy(&task.comm),
                wait.on
            ));
        }
    }
    out
}
