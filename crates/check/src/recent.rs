//! Looking things up in a long sorted queue, of which nearly always the newest part is asked for.

use std::collections::VecDeque;

/// How many items at the front of a queue fulfil what none behind them does. Like `partition_point`, and looks at the end
/// first, in growing steps: what was added lately is at hand, and what is old need not be fetched.
pub(crate) fn partition_from_end<T>(queue: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    let (mut end, mut step) = (queue.len(), 1);
    loop {
        let start = end.saturating_sub(step);
        if start == end || is_before(&queue[start]) {
            // The answer lies between: all up to `start` fulfil it, and `end` does not.
            return bisect(queue, start, end, is_before);
        }
        end = start;
        step *= 2;
    }
}

fn bisect<T>(queue: &VecDeque<T>, mut start: usize, mut end: usize, is_before: impl Fn(&T) -> bool) -> usize {
    while start < end {
        let middle = start + (end - start) / 2;
        if is_before(&queue[middle]) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::partition_from_end;
    use std::collections::VecDeque;

    #[test]
    fn it_is_the_partition_point_of_every_queue() {
        for length in 0..70 {
            let queue: VecDeque<u32> = (0..length).map(|number| number * 2).collect();
            for bound in 0..=2 * length + 1 {
                let expected = queue.partition_point(|number| *number < bound);
                assert_eq!(partition_from_end(&queue, |number| *number < bound), expected, "{length} {bound}");
            }
        }
    }
}
