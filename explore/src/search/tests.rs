//! Searches over a made-up subject.

use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

use super::*;
use bloodhound_decisions::{Concern, Epoch, FaultChain, Site, Word};

const MS: u64 = 1_000_000;

/// Crashes of three nodes may be added.
fn chains() -> Vec<FaultChain> {
    let gap = |target| Site::Fault { kind: Word::new("crash"), target, nth: 0, part: Word::new("gap") };
    (1..=3).map(|target| FaultChain::new(gap(target), None)).collect()
}

fn settings(strategy: Strategy, runs: u64) -> Settings {
    Settings {
        strategy,
        first_seed: 100,
        runs,
        max_depth: 5,
        max_states: 40,
        prefer: Prefer { rare: true, near: true },
    }
}

/// What a run of the made-up subject shows: a function of its log. The later it goes on, the more is to be seen.
fn run(order: &Order) -> Seen {
    let log = match &order.origin {
        Origin::Boot => Arc::new(Log::new(0, order.seed)),
        Origin::State { log, .. } => log.clone(),
    };
    let last = log.epochs.last().map_or(log.seed, |epoch| epoch.seed);
    let mut dice = Dice::new(last);
    let depth = log.epochs.len() as u64;
    let features = (0..6).map(|_| (dice.below(40 + 200 * depth), (1000 + dice.below(9000)) * MS)).collect();
    let choice = |nth| Choice {
        part: bloodhound_decisions::Part::Run,
        site: bloodhound_decisions::Site::ClientRandom { nth },
    };
    Seen {
        log,
        moments: (0..10).map(|n| (1000 + n * 1000) * MS).collect(),
        features,
        nearness: dice.below(1000) as u32,
        cost: 500 + dice.below(500),
        failed: dice.below(50) == 0,
        faults: Arc::new(vec![Planned { happens: choice(0), bound: 2, at: 9500 * MS }]),
        draws: Arc::new((0..20).map(|nth| (choice(nth), (1000 + u64::from(nth) * 500) * MS)).collect()),
    }
}

/// All orders of a search.
fn orders(settings: &Settings) -> Vec<Order> {
    let mut search = Search::new(settings.clone(), chains());
    let mut all = search.begin();
    let mut at = 0;
    while at < all.len() {
        let seen = run(&all[at]);
        at += 1;
        all.extend(search.merge(Some(seen)));
        assert!(search.frontier().len() <= settings.max_states);
    }
    all
}

#[test]
fn nearness_decides_only_where_it_is_preferred() {
    let orders = |near: bool, nearness: u32| {
        let prefer = Prefer { rare: true, near };
        let settings = Settings { prefer, ..settings(Strategy::CoverageGuided, 300) };
        let mut search = Search::new(settings, chains());
        let mut all = search.begin();
        let mut at = 0;
        while at < all.len() {
            let nearness = (at as u32 * nearness).min(1_000_000);
            let seen = Seen { nearness, ..run(&all[at]) };
            at += 1;
            all.extend(search.merge(Some(seen)));
        }
        all
    };
    assert_eq!(orders(false, 0), orders(false, 20_000));
    assert_ne!(orders(true, 0), orders(true, 20_000));
}

#[test]
fn a_search_is_a_function_of_its_settings() {
    for strategy in Strategy::ALL {
        let settings = settings(strategy, 400);
        let one = orders(&settings);
        assert_eq!(one.len(), 400);
        assert!(one.iter().enumerate().all(|(at, order)| order.number == at as u64));
        assert_eq!(orders(&settings), one, "{strategy:?}");
        let branches = one.iter().filter(|order| order.origin != Origin::Boot).count();
        assert_eq!(branches > 0, strategy.is_guided(), "{strategy:?}");
    }
}

#[test]
fn seeds_are_begun_in_their_order_and_never_too_few() {
    for (strategy, least) in [(Strategy::CoverageGuided, 370), (Strategy::InputTree, 500)] {
        let all = orders(&settings(strategy, 1000));
        let seeds: Vec<u64> = all.iter().filter(|o| o.origin == Origin::Boot).map(|o| o.seed).collect();
        assert!(seeds.iter().enumerate().all(|(at, seed)| *seed == 100 + at as u64));
        assert!(seeds.len() > least && seeds.len() < 950, "{strategy:?}: {}", seeds.len());
    }
}

#[test]
fn depth_and_order_are_as_the_strategy_says() {
    let depth = |order: &Order| match &order.origin {
        Origin::Boot => 0,
        Origin::State { log, .. } => log.epochs.len(),
    };
    let deepest = |strategy| orders(&settings(strategy, 300)).iter().map(depth).max();
    assert!(deepest(Strategy::Dfs) > deepest(Strategy::Bfs));
    assert!(deepest(Strategy::Dfs) <= Some(6), "max_depth is 5");
    let shallow = Settings { max_depth: 0, ..settings(Strategy::Dfs, 200) };
    assert!(orders(&shallow).iter().map(depth).max() <= Some(1));
}

#[test]
fn epochs_of_a_branch_rise() {
    for order in orders(&settings(Strategy::CoverageGuided, 600)) {
        if let Origin::State { log, at, .. } = order.origin {
            assert!(log.epochs.is_sorted_by_key(|epoch: &Epoch| epoch.from));
            assert!(log.epochs.iter().all(|epoch| epoch.from <= at + 1));
            assert!(log.epochs.iter().all(|epoch| !epoch.concerns.contains(&Concern::Nodes)));
        }
    }
}

/// A run is carried out from a snapshot of another state only where it is the run of that state until then.
#[test]
fn a_run_comes_by_the_state_from_which_it_is_carried_out() {
    let (mut others, mut from_boot) = (0, 0);
    let mut search = Search::new(settings(Strategy::CoverageGuided, 1500), chains());
    let mut all = search.begin();
    let mut next = 0;
    while next < all.len() {
        if let Origin::State { id, at, log, by } = &all[next].origin {
            let Some((by, when)) = by else {
                from_boot += 1;
                next += 1;
                all.extend(search.merge(Some(run(&all[next - 1]))));
                continue;
            };
            others += u32::from(by != id);
            assert!(when <= at);
            if let Some(state) = search.frontier().get(*by) {
                let until = |log: &Log| {
                    log.epochs.iter().filter(|epoch| epoch.from <= *when).cloned().collect::<Vec<_>>()
                };
                assert_eq!((state.at, until(&state.log), state.log.seed), (*when, until(log), log.seed));
            }
        }
        next += 1;
        all.extend(search.merge(Some(run(&all[next - 1]))));
    }
    assert!(others > 5 && from_boot > 5, "{others} {from_boot}");
}

#[test]
fn runs_without_a_result_are_merged_too() {
    let mut search = Search::new(settings(Strategy::CoverageGuided, 50), chains());
    let mut all = search.begin();
    assert_eq!(all.len() as u64, LAG);
    let mut at = 0;
    while at < all.len() {
        let seen = (at % 3 != 0).then(|| run(&all[at]));
        at += 1;
        all.extend(search.merge(seen));
    }
    assert_eq!((all.len(), search.merged().0), (50, 50));
    assert!(search.merge(None).is_none(), "there is nothing to merge any more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The limit holds whatever is found, and what was ordered is merged once.
    #[test]
    fn limits_hold(strategy in 0usize..6, seed: u64, states in 1usize..30, depth in 0u32..4, runs in 1u64..200) {
        let settings = Settings {
            strategy: Strategy::ALL[strategy], first_seed: seed, runs, max_depth: depth, max_states: states, prefer: Prefer { rare: seed % 3 > 0, near: seed % 2 == 0 },
        };
        let all = orders(&settings);
        prop_assert_eq!(all.len() as u64, runs);
        prop_assert_eq!(&orders(&settings), &all);
    }
}

#[test]
fn what_it_is_given_is_gone_on_from_and_is_no_run() {
    let settings = Settings { strategy: Strategy::CoverageGuided, ..settings(Strategy::CoverageGuided, 60) };
    let given: Vec<Seen> = orders(&settings).iter().take(3).map(run).collect();
    let begun = |given: &[Seen]| {
        let mut search = Search::new(settings.clone(), chains());
        given.iter().for_each(|seen| search.give(seen.clone()));
        (search.frontier().len(), search.begin(), search)
    };
    let (none, first, _) = begun(&[]);
    assert!(none == 0 && first.iter().all(|order| order.origin == Origin::Boot));
    let (states, first, mut search) = begun(&given);
    assert!(states >= 3, "{states}");
    assert!(first.iter().any(|order| matches!(order.origin, Origin::State { .. })), "from its first runs on");
    assert_eq!((search.given(), search.merged().0), (3, 0));
    // It is the same each time, and has all of its runs.
    assert_eq!(begun(&given).1, first);
    let mut all = first;
    let mut at = 0;
    while at < all.len() {
        let seen = run(&all[at]);
        at += 1;
        all.extend(search.merge(Some(seen)));
    }
    assert_eq!((all.len(), search.merged().0), (60, 60));
}
