//! The traces: deterministic, made of a seed.

use model::Dice;

/// One request: bytes `from..to` of an object of `size` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) object: u32,
    pub(crate) size: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Ranks by Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(objects: u32, alpha: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=objects).map(|rank| {
            sum += f64::from(rank).powf(-alpha);
            sum
        });
        Self(weights.collect())
    }

    fn draw(&self, dice: &mut Dice) -> u32 {
        let whole = self.0.last().copied().unwrap_or(1.0);
        let at = dice.below(1 << 52) as f64 / (1u64 << 52) as f64 * whole;
        self.0.partition_point(|sum| *sum < at) as u32
    }
}

/// Sizes as a mirror has them: 70 % up to 32 KiB, 25 % up to 512 KiB, 5 % up to 4 MiB; of an object
/// always the same.
fn size(object: u32) -> u64 {
    let mut dice = Dice::seeded(u64::from(object) ^ 0x5151);
    match dice.below(100) {
        0..70 => 256 + dice.below(32 << 10),
        70..95 => (32 << 10) + dice.below(480 << 10),
        _ => (512 << 10) + dice.below(3584 << 10),
    }
}

fn whole(object: u32) -> Ask {
    let size = size(object);
    Ask { object, size, from: 0, to: size }
}

/// Independent requests, ranks by Zipf's law with this exponent.
pub(crate) fn zipf(alpha: f64, requests: usize) -> Vec<Ask> {
    let (zipf, mut dice) = (Zipf::new(20_000, alpha), Dice::seeded(1));
    (0..requests).map(|_| whole(zipf.draw(&mut dice))).collect()
}

/// The same with every third request for something nobody asks for again: a crawler, a mirror run.
pub(crate) fn scan(requests: usize) -> Vec<Ask> {
    let (zipf, mut dice) = (Zipf::new(20_000, 0.9), Dice::seeded(2));
    let ask = |n: usize| match n % 3 {
        0 => whole(1_000_000 + n as u32),
        _ => whole(zipf.draw(&mut dice)),
    };
    (0..requests).map(ask).collect()
}

/// A release day. Before it: a mirror as above. From a third of the time on, half of all requests are
/// for the release: four in ten for its hundred packages, one in twenty for its three images of 12 MiB,
/// of which clients want one of 24 parts (the first ones more often than the last), the rest for its
/// small index files. Through all of it one request in ten is a crawler's.
pub(crate) fn release_day(requests: usize) -> Vec<Ask> {
    const IMAGE: u64 = 12 << 20;
    let (old, packages) = (Zipf::new(20_000, 0.8), Zipf::new(100, 1.0));
    let parts = Zipf::new(24, 0.7);
    let mut dice = Dice::seeded(3);
    let mut ask = |n: usize| {
        if n.is_multiple_of(10) {
            return whole(2_000_000 + n as u32);
        }
        let is_release = n > requests / 3 && dice.below(2) == 0;
        if !is_release {
            return whole(old.draw(&mut dice));
        }
        match dice.below(100) {
            0..40 => whole(100_000 + packages.draw(&mut dice)),
            40..45 => {
                let part = u64::from(parts.draw(&mut dice));
                let from = part * (IMAGE / 24);
                let object = 200_000 + dice.below(3) as u32;
                Ask { object, size: IMAGE, from, to: from + IMAGE / 24 }
            }
            _ => {
                let object = 300_000 + dice.below(20) as u32;
                Ask { object, size: 2000, from: 0, to: 2000 }
            }
        }
    };
    (0..requests).map(&mut ask).collect()
}
