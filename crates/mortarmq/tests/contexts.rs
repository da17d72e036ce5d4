//! Contexts: kept for their owner alone, in the right order between flag, environment and default, and never shown.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use support::{Broker, Done, mortarmq};

/// Runs a command of a user whose config folder this is.
fn run(home: &Path, args: &[&str], environment: &[(&str, &str)]) -> Done {
    let mut command = mortarmq();
    command.env("XDG_CONFIG_HOME", home).envs(environment.iter().copied()).args(args);
    command.stdin(std::process::Stdio::null());
    Done::of(command.output().expect("the binary runs"))
}

fn is_done(done: &Done) {
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

#[test]
fn a_context_says_where_the_broker_is_unless_flag_or_environment_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = folder.path().join("config");
    let broker = Broker::start(&folder.path().join("data"));
    let (server, admin) = (broker.client_addr.clone(), broker.admin_addr.clone());
    is_done(&run(&home, &["context", "add", "here", "--server", &server, "--admin", &admin], &[]));
    is_done(&run(
        &home,
        &["context", "add", "gone", "--server", "127.0.0.1:1", "--admin", "127.0.0.1:1", "--use"],
        &[],
    ));

    // The one in use, then the named one.
    assert_eq!(run(&home, &["broker", "status"], &[]).code, Some(3));
    is_done(&run(&home, &["broker", "status", "--context", "here"], &[]));
    is_done(&run(&home, &["broker", "status"], &[("MORTARMQ_CONTEXT", "here")]));
    is_done(&run(&home, &["topics", "create", "orders", "--context", "here"], &[]));
    is_done(&run(&home, &["context", "use", "here"], &[]));
    is_done(&run(&home, &["topics", "list"], &[]));
    is_done(&run(&home, &["balance"], &[]));

    // Environment before context, flag before environment.
    let nowhere = [("MORTARMQ_ADMIN", "127.0.0.1:1"), ("MORTARMQ_SERVER", "127.0.0.1:1")];
    assert_eq!(run(&home, &["broker", "status"], &nowhere).code, Some(3));
    assert_eq!(run(&home, &["topics", "list"], &nowhere).code, Some(3));
    is_done(&run(&home, &["broker", "status", "--admin", &admin], &nowhere));
    is_done(&run(&home, &["topics", "list", "--server", &server], &nowhere));

    is_done(&run(&home, &["context", "use"], &[]));
    let listed = run(&home, &["context", "list"], &[]);
    assert_eq!(
        listed.stdout,
        format!("gone\t\t127.0.0.1:1\t127.0.0.1:1\tnone\t-\nhere\t\t{server}\t{admin}\tnone\t-\n")
    );
    is_done(&run(&home, &["context", "remove", "gone"], &[]));
    let done = run(&home, &["broker", "status", "--context", "gone"], &[]);
    assert!(done.code == Some(2) && done.stderr.contains("no context is named \"gone\""), "{}", done.stderr);
}

#[test]
fn a_token_is_for_its_owner_alone_and_never_shown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let home = folder.path().join("config");
    let token = "mq_a-token-that-nobody-may-see";
    let mut child = mortarmq()
        .env("XDG_CONFIG_HOME", &home)
        .args(["context", "add", "prod", "--server", "127.0.0.1:1", "--admin", "127.0.0.1:1", "--token-stdin", "--use"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), format!("{token}\n").as_bytes())
        .expect("it reads");
    let added = Done::of(child.wait_with_output().expect("it ends"));
    is_done(&added);
    let file = home.join("mortarmq/contexts.json");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().expect("a folder"))), (0o600, 0o700));
    assert!(std::fs::read_to_string(&file).expect("ours").contains(token));
    let mut shown = added.stdout + &added.stderr;
    for args in [
        &["context", "list"][..],
        &["context", "list", "--json"],
        &["context", "add", "prod"],
        &["broker", "status"],
        &["broker", "status", "--help"],
        &["topics", "list", "--no-such-flag"],
        &["topics", "list"],
        &["doctor"],
        &["context", "use", "prdo"],
    ] {
        let done = run(&home, args, &[]);
        shown += &(done.stdout + &done.stderr);
    }
    assert!(shown.contains("set") && !shown.contains(token), "{shown}");

    // Who opens the file to others is told so.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let done = run(&home, &["context", "list"], &[]);
    assert!(done.stderr.contains("chmod 600"), "{}", done.stderr);
    // What changes them closes it again.
    is_done(&run(&home, &["context", "use", "prod"], &[]));
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn a_broken_file_stops_what_needs_it_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("mortarmq")).expect("a folder");
    std::fs::write(folder.path().join("mortarmq/contexts.json"), "{\"contexts\": {\"a\": {\"token\": 7")
        .expect("written");
    let done = run(folder.path(), &["broker", "status"], &[]);
    assert!(done.code == Some(1) && done.stderr.contains("contexts.json is not understood"), "{}", done.stderr);
    is_done(&run(folder.path(), &["version"], &[]));
    is_done(&run(folder.path(), &["explain", "UNKNOWN_TOPIC"], &[]));
}
