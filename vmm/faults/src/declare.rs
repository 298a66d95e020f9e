//! How kinds are declared: the macro that [`crate::kinds`] calls with all of them.

/// Makes [`Kind`] and its declarations, and a macro each for kinds of links and for kinds that begin at a time, with which
/// `bloodhound-sim` finds their rooms. Kinds that are asked for at operations of programs need none: the kernel asks for them by
/// name, where they happen.
macro_rules! kinds {
    (
        $d:tt
        links { $($(#[$ldoc:meta])* $link:ident in $lroom:ident { $($lbody:tt)* })* }
        timed { $($(#[$tdoc:meta])* $timed:ident in $troom:ident { $($tbody:tt)* })* }
        asked { $($(#[$adoc:meta])* $asked:ident { $($abody:tt)* })* }
    ) => {
        /// A kind of faults.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Kind {
            $($(#[$ldoc])* $link,)*
            $($(#[$tdoc])* $timed,)*
            $($(#[$adoc])* $asked,)*
        }

        impl Kind {
            /// All declarations, in the order of the manual.
            #[allow(clippy::needless_update)] // some say all
            pub const DECLARATIONS: &'static [Declaration] = &[
                $(Declaration { kind: Kind::$link, begins: Begins::Link, $($lbody)* ..PLAIN },)*
                $(Declaration { kind: Kind::$timed, $($tbody)* ..PLAIN },)*
                $(Declaration { kind: Kind::$asked, begins: Begins::Asked, $($abody)* ..PLAIN },)*
            ];
        }

        /// Calls a macro with the kinds that are properties of links, each with its function.
        #[macro_export]
        macro_rules! link_kinds {
            ($d then:ident) => { $d then! { $($link in $lroom,)* } };
        }

        /// Calls a macro with the kinds that begin at a time, each with its room.
        #[macro_export]
        macro_rules! timed_kinds {
            ($d then:ident) => { $d then! { $($timed in $troom,)* } };
        }
    };
}
