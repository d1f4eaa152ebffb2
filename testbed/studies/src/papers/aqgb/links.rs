//! Links that flows share: max-min fair.

/// The rates of flows, each over some links, by progressive filling: all grow alike until a link is full, whose flows then stay.
pub fn max_min(capacity: &[f64], flows: &[Vec<usize>]) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut open: Vec<bool> = flows.iter().map(|links| !links.is_empty()).collect();
    let mut left = capacity.to_vec();
    while open.iter().any(|open| *open) {
        let mut crossing = vec![0_u32; capacity.len()];
        for (links, _) in flows.iter().zip(&open).filter(|(_, open)| **open) {
            links.iter().for_each(|link| crossing[*link] += 1);
        }
        let share = |link: usize| left[link].max(0.0) / f64::from(crossing[link]);
        let used = || (0..capacity.len()).filter(|link| crossing[*link] > 0);
        let Some(step) = used().map(share).min_by(f64::total_cmp) else { break };
        let full: Vec<bool> = (0..capacity.len())
            .map(|link| crossing[link] > 0 && share(link) <= step * (1.0 + 1e-12))
            .collect();
        for (link, left) in left.iter_mut().enumerate() {
            *left -= step * f64::from(crossing[link]);
        }
        for ((links, open), rate) in
            flows.iter().zip(&mut open).zip(&mut rates).filter(|((_, open), _)| **open)
        {
            *rate += step;
            *open = !links.iter().any(|link| full[*link]);
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_at_the_cost_of_whoever_has_less() {
        // Three flows over a link of 3, of which one also crosses a link of 0.5, and one alone a link of 7.
        let rates = max_min(&[3.0, 0.5, 7.0], &[vec![0], vec![0, 1], vec![0], vec![2]]);
        assert_eq!(rates, [1.25, 0.5, 1.25, 7.0]);
        assert_eq!(max_min(&[1.0], &[vec![]]), [0.0]);
        assert!(max_min(&[1.0], &[]).is_empty());
    }

    /// Everybody sends to all others: each downlink carries all flows but its own.
    #[test]
    fn broadcasts_share_downlinks() {
        let flow = |sender: usize| {
            [sender].into_iter().chain((0..4).filter(|to| *to != sender).map(|to| 4 + to)).collect()
        };
        let all: Vec<Vec<usize>> = (0..4).map(flow).collect();
        assert_eq!(max_min(&[1.0; 8], &all), [1.0 / 3.0; 4]);
        assert_eq!(max_min(&[1.0; 8], &all[..2]), [0.5; 2]);
        assert_eq!(max_min(&[1.0; 8], &all[..1]), [1.0]);
    }
}
