//! Which parent an object is filled from: weighted rendezvous hashing with bounded load.
//!
//! Every child comes to the same order for an object without talking to the others, so that each
//! object is fetched from a master by one parent; when a parent goes, only its objects move
//! (Thaler and Ravishankar 1998; the weights after Schindelhauer and Schomaker 2005).

/// A parent that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Of its name: [`seed_of`].
    pub seed: u64,
    /// Its share beside the others; 0 means never.
    pub weight: u32,
    /// Whether it stands at the site of the child.
    pub is_near: bool,
    /// Requests of this child that it is answering.
    pub load: usize,
}

/// A load up to this is never too much.
const LOAD_MIN: usize = 8;

/// What of a name goes into its scores; the same on every machine.
pub fn seed_of(name: &str) -> u64 {
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The order in which parents are asked for an object, as indices: those that have not too much to
/// do first, of these the near ones, of these by score. `object`: a hash.
pub fn order(object: u64, parents: &[Parent]) -> Vec<usize> {
    let total: usize = parents.iter().map(|p| p.load).fold(0, usize::saturating_add);
    // 1.25 times the average.
    let bound = total.saturating_mul(5).div_ceil(parents.len().saturating_mul(4).max(1));
    let bound = bound.max(LOAD_MIN);
    let mut ranked: Vec<_> = parents
        .iter()
        .enumerate()
        .filter(|(_, p)| p.weight > 0)
        .map(|(at, p)| (p.load > bound, !p.is_near, score(object, p), at))
        .collect();
    ranked.sort_by(|a, b| {
        let rough = (a.0, a.1).cmp(&(b.0, b.1));
        rough.then_with(|| b.2.total_cmp(&a.2)).then_with(|| a.3.cmp(&b.3))
    });
    ranked.into_iter().map(|(_, _, _, at)| at).collect()
}

/// The greater, the more this parent is the one of the object.
fn score(object: u64, parent: &Parent) -> f64 {
    /// 2^-53: the distance of two random numbers between 0 and 1.
    const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    let random = ((mix(mix(object) ^ parent.seed) >> 11) as f64 + 0.5) * STEP;
    f64::from(parent.weight) / -random.ln()
}

/// The finaliser of SplitMix64: each bit of the input moves half of the output.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test that fails")]
mod tests {
    use super::*;

    fn parents(weights: &[u32]) -> Vec<Parent> {
        let named = weights.iter().enumerate();
        let seed = |n| seed_of(&format!("node{n}"));
        named
            .map(|(n, &weight)| Parent { seed: seed(n), weight, is_near: false, load: 0 })
            .collect()
    }

    fn first(object: u64, parents: &[Parent]) -> usize {
        order(object, parents)[0]
    }

    #[test]
    fn objects_are_shared_by_weight_and_only_those_of_a_lost_parent_move() {
        let all = parents(&[100, 100, 200]);
        let mut counts = [0_u32; 3];
        for object in 0..10_000 {
            let mine = first(object, &all);
            counts[mine] += 1;
            let without: Vec<_> = all.iter().copied().filter(|p| *p != all[1]).collect();
            let then = without[first(object, &without)];
            assert!(mine == 1 || then == all[mine], "{object}");
            if mine == 1 {
                assert_eq!(then, all[order(object, &all)[1]], "{object}: its second");
            }
        }
        assert!(counts[0].abs_diff(2500) < 200 && counts[2].abs_diff(5000) < 200, "{counts:?}");
    }

    #[test]
    fn near_ones_come_first_and_busy_ones_last() {
        let mut all = parents(&[100, 100, 100, 0]);
        let object = (0..).find(|object| first(*object, &all) == 0).unwrap();
        assert_eq!(order(object, &all).len(), 3, "weight 0 means never");
        all[1].is_near = true;
        assert_eq!(first(object, &all), 1);
        all[1].load = LOAD_MIN;
        assert_eq!(first(object, &all), 1);
        all[1].load = LOAD_MIN + 1;
        assert_eq!(order(object, &all)[2], 1, "too much beside idle ones");
        all[0].load = 100;
        all[1].load = 100;
        all[2].load = 100;
        assert_eq!(first(object, &all), 1, "all have much to do");
        assert_eq!(order(object, &[]), Vec::<usize>::new());
    }
}
