//! One path in one partition: leases, settles, retries, order by key, books
