//! [`forward_platform`](crate::forward_platform): methods of a platform that hands them on to one inside of it.

/// In an implementation of [`Platform`](crate::Platform): the named methods do what those of the platform in the field `$inner` do.
///
/// ```
/// # use bloodhound_platform::{forward_platform, Platform, SpaceId};
/// struct Careless(Box<dyn Platform>);
///
/// impl Platform for Careless {
///     forward_platform!(0: run, step, approach, processor_time, memory, map, unmap, mapped, xstate_owner, save_xstate,
///         load_xstate, reset_space, drop_space, evict_all, abilities);
///
///     fn write_protect(&mut self, _: SpaceId) {}
/// }
/// ```
#[macro_export]
macro_rules! forward_platform {
    ($inner:tt: $($method:ident),+ $(,)?) => { $( $crate::forward_platform!(@ $method $inner); )+ };
    (@ run $inner:tt) => {
        fn run(
            &mut self,
            space: $crate::SpaceId,
            task: $crate::TaskKey,
            regs: &mut $crate::Regs,
            stops: &mut $crate::Stops,
        ) -> Result<$crate::Trap, $crate::PlatformError> {
            self.$inner.run(space, task, regs, stops)
        }
    };
    (@ step $inner:tt) => {
        fn step(
            &mut self,
            space: $crate::SpaceId,
            task: $crate::TaskKey,
            regs: &mut $crate::Regs,
        ) -> Result<$crate::Trap, $crate::PlatformError> {
            self.$inner.step(space, task, regs)
        }
    };
    (@ approach $inner:tt) => {
        fn approach(&mut self, space: $crate::SpaceId, rip: u64) {
            self.$inner.approach(space, rip);
        }
    };
    (@ processor_time $inner:tt) => {
        fn processor_time(&self, space: $crate::SpaceId) -> Option<std::time::Duration> {
            self.$inner.processor_time(space)
        }
    };
    (@ memory $inner:tt) => {
        fn memory(&self, space: $crate::SpaceId) -> Option<&$crate::extents::Extents> {
            self.$inner.memory(space)
        }
    };
    (@ map $inner:tt) => {
        fn map(&mut self, space: $crate::SpaceId, mappings: &[$crate::Mapping]) {
            self.$inner.map(space, mappings);
        }
    };
    (@ unmap $inner:tt) => {
        fn unmap(&mut self, space: $crate::SpaceId, addr: u64, len: u64) {
            self.$inner.unmap(space, addr, len);
        }
    };
    (@ write_protect $inner:tt) => {
        fn write_protect(&mut self, space: $crate::SpaceId) {
            self.$inner.write_protect(space);
        }
    };
    (@ mapped $inner:tt) => {
        fn mapped(&self, space: $crate::SpaceId, out: &mut Vec<$crate::Mapping>) {
            self.$inner.mapped(space, out);
        }
    };
    (@ xstate_owner $inner:tt) => {
        fn xstate_owner(&self, space: $crate::SpaceId) -> Option<$crate::TaskKey> {
            self.$inner.xstate_owner(space)
        }
    };
    (@ save_xstate $inner:tt) => {
        fn save_xstate(
            &mut self,
            space: $crate::SpaceId,
        ) -> Result<Option<($crate::TaskKey, $crate::XState)>, $crate::PlatformError> {
            self.$inner.save_xstate(space)
        }
    };
    (@ load_xstate $inner:tt) => {
        fn load_xstate(
            &mut self,
            space: $crate::SpaceId,
            task: $crate::TaskKey,
            state: &$crate::XState,
        ) -> Result<(), $crate::PlatformError> {
            self.$inner.load_xstate(space, task, state)
        }
    };
    (@ reset_space $inner:tt) => {
        fn reset_space(&mut self, space: $crate::SpaceId) {
            self.$inner.reset_space(space);
        }
    };
    (@ drop_space $inner:tt) => {
        fn drop_space(&mut self, space: $crate::SpaceId) {
            self.$inner.drop_space(space);
        }
    };
    (@ evict_all $inner:tt) => {
        fn evict_all(&mut self) {
            self.$inner.evict_all();
        }
    };
    (@ abilities $inner:tt) => {
        fn abilities(&self) -> $crate::Abilities {
            self.$inner.abilities()
        }
    };
}
