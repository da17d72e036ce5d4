//! `doctor` on real folders and on real brokers: what it finds, what it types, and its exit code.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use support::{Broker, Done, run};

/// The state and the command of each check.
fn rows(done: &Done) -> BTreeMap<String, (String, String)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!(cells.len(), 4, "{line}");
        assert_eq!(cells[1] == "ok", cells[3] == "-", "what is not well has a command: {line}");
        (cells[0].to_owned(), (cells[1].to_owned(), cells[3].to_owned()))
    };
    done.stdout.lines().map(row).collect()
}

fn state<'a>(rows: &'a BTreeMap<String, (String, String)>, check: &str) -> &'a str {
    rows.get(check).map_or("not looked at", |(state, _)| state)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have names of text")
}

#[test]
fn a_folder_in_memory_is_found_and_one_on_a_disk_is_not() {
    let memory = tempfile::tempdir_in("/dev/shm").expect("Linux has it");
    let done = run(&["doctor", "--data-dir", text(memory.path())]);
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    assert_eq!(state(&rows(&done), "file_system"), "finding", "{}", done.stdout);
    assert!(done.stdout.contains("tmpfs: the data is in memory"), "{}", done.stdout);
    // It left nothing behind.
    assert_eq!(std::fs::read_dir(memory.path()).expect("it is there").count(), 0);

    // Where the build lies is a disk, as long as nobody has put that into memory too.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build can be written");
    let not_yet = disk.path().join("data");
    let done = run(&["doctor", "--data-dir", text(&not_yet)]);
    let rows = rows(&done);
    assert_eq!(state(&rows, "data_dir"), "ok", "{}", done.stdout);
    assert_ne!(state(&rows, "fsync"), "unknown", "{}", done.stdout);
    assert!(!not_yet.exists(), "doctor changes nothing");
}

#[test]
fn what_a_configuration_asks_for_is_judged_without_a_broker() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("node.toml");
    let data = folder.path().join("data");
    let write = |more: &str| std::fs::write(&file, format!("data_dir = {:?}\n{more}", text(&data))).expect("written");
    let doctor = || run(&["doctor", "--config", text(&file)]);

    write("listen_client = \"0.0.0.0:7188\"\n");
    let done = doctor();
    let found = rows(&done);
    assert_eq!((done.code, state(&found, "access")), (Some(1), "finding"), "{}", done.stdout);
    assert!(found["access"].1.starts_with("mortarmq init"), "{}", done.stdout);

    let hash = "0".repeat(64);
    write(&format!(
        "listen_client = \"0.0.0.0:7188\"\ntokens = [{{ name = \"a\", sha256 = \"{hash}\", grants = [{{ action = \"admin\" }}] }}]\n"
    ));
    let done = doctor();
    assert!(done.stdout.contains("without TLS"), "{}", done.stdout);
    assert!(!done.stdout.contains(&hash) && !done.stderr.contains(&hash));

    write("max_connections = 1000000\ndisk_reserve_bytes = \"1TiB\"\ntls_cert = \"no.pem\"\ntls_key = \"no.pem\"\n");
    let done = doctor();
    let found = rows(&done);
    for check in ["free_space", "tls"] {
        assert_eq!(state(&found, check), "finding", "{}", done.stdout);
    }
    assert_eq!(found["free_space"].1, format!("df -h {}", text(folder.path())));

    // What is no configuration is told as by every command.
    write("no_such_key = 1\n");
    assert_eq!(doctor().code, Some(2));
}

#[test]
fn the_limit_of_open_files_is_that_of_this_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let doctor =
        format!("ulimit -n 1024 && exec {} doctor --data-dir {}", env!("CARGO_BIN_EXE_mortarmq"), text(folder.path()));
    let done = Done::of(Command::new("bash").args(["-c", &doctor]).output().expect("a shell"));
    let found = rows(&done);
    assert_eq!(state(&found, "open_files"), "finding", "{}", done.stdout);
    assert!(found["open_files"].1.starts_with("ulimit -n "), "{}", done.stdout);
}

/// A disk of 16 MiB, mounted for one test: the file that it is, and the folder it is seen at. Only root can have one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (image, at) = (folder.path().join("image"), folder.path().join("at"));
        std::fs::create_dir(&at).expect("a folder");
        std::fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
        let has_done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_mounted = has_done(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && has_done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path().join("at")).output();
    }
}

#[test]
fn a_disk_that_is_too_small_is_found() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("not looked at: this needs root, mkfs.ext4 and loop devices");
        return;
    };
    let done = run(&["doctor", "--data-dir", text(&disk.0.path().join("at"))]);
    let found = rows(&done);
    assert_eq!(done.code, Some(1), "{}", done.stdout);
    assert_eq!(state(&found, "file_system"), "ok", "{}", done.stdout);
    assert_eq!(state(&found, "free_space"), "finding", "{}", done.stdout);
}

#[test]
fn a_running_broker_is_asked_over_its_operator_routes() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("Linux has it");
    let broker = Broker::start_with(&folder.path().join("data"), &["--disk-reserve-bytes", "1MiB"]);
    broker.rows(&["topics", "create", "orders"]);
    broker.rows(&["pub", "orders", "x", "--count", "20"]);
    let done = broker.run(&["doctor"]);
    let found = rows(&done);
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    assert_eq!(state(&found, "file_system"), "finding", "{}", done.stdout);
    for check in ["version", "access", "ready", "damage", "connections", "fsync"] {
        assert_eq!(state(&found, check), "ok", "{check}: {}", done.stdout);
    }
    for check in ["open_files", "free_space"] {
        assert_ne!(state(&found, check), "not looked at", "{check}: {}", done.stdout);
    }
    // Its folder can be looked at meanwhile: nothing there is locked or changed.
    let done = run(&["doctor", "--data-dir", &broker.data_dir()]);
    assert_eq!(state(&rows(&done), "fsync"), "ok", "{}", done.stdout);
    assert_eq!(broker.rows(&["broker", "status"]).lines().count(), 1);
}

#[test]
fn nobody_there_is_exit_code_3() {
    let done = run(&["doctor", "--admin", "127.0.0.1:1"]);
    assert_eq!(done.code, Some(3), "{}", done.stderr);
}

#[test]
fn a_broker_of_another_version_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    // Answers as another release might: with its own version, and without what this one asks for besides.
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut request = [0; 4096];
            let length = connection.read(&mut request).unwrap_or(0);
            let is_broker = request[..length].starts_with(b"GET /v1/broker ");
            let body = if is_broker { r#"{"version":"9.9.9"}"# } else { "{}" };
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    let done = run(&["doctor", "--admin", &address]);
    let found = rows(&done);
    assert_eq!((done.code, state(&found, "version")), (Some(1), "finding"), "{}", done.stdout);
    assert_eq!(state(&found, "metrics"), "unknown", "{}", done.stdout);
}
