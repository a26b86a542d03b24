//! An engine that was written and read again decides the same. And what a large job costs.

use proptest::prelude::*;

use super::*;
use crate::testing::{Step, input, steps};

fn read_again(job: &JobEngine) -> JobEngine {
    serde_json::from_str(&serde_json::to_string(job).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_cut_anywhere_goes_on_as_if_nothing_had_been(
        steps in steps(),
        cuts in prop::collection::vec(0..120_usize, 1..4),
        (maps, reduces) in (0..5_usize, 0..3_u32),
        skipped in 0..2_i64,
    ) {
        let mut world = world_with(maps, reduces, |settings| settings.max_skipped.map = skipped);
        world.submit();
        let mut restored = read_again(&world.job);
        for (at, step) in steps.iter().enumerate() {
            if let Step::Wait(span_ms) = step {
                world.after(*span_ms);
            }
            if cuts.contains(&at) {
                restored = read_again(&restored);
            }
            let Some(input) = input(&world.job, step) else { continue };
            let outcome = world.job.apply(world.now, input.clone());
            prop_assert_eq!(&outcome, &restored.apply(world.now, input));
            prop_assert_eq!(world.job.next_deadline(), restored.next_deadline());
            prop_assert!(world.job.audit().is_ok(), "{:?} after {:?}", world.job.audit(), step);
            let text = serde_json::to_string(&outcome).unwrap();
            prop_assert_eq!(serde_json::from_str::<JobOutcome>(&text).unwrap(), outcome);
        }
        prop_assert_eq!(&world.job, &restored);
    }
}
