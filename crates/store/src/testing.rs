//! A disk that breaks on demand: errors, a process killed between or inside two operations, and
//! power loss, after which unsynced writes are there, lost or torn and unsynced names are there
//! or not.
//!
//! Files are real, in a fresh folder, so that extents can be read. Beside them the disk keeps what
//! a real one has promised: the content each file and the names each folder had at the last sync. [`FaultDisk::crash`] rebuilds the folder from those promises and dice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use model::Dice;

use crate::disk::{Disk, Entry, Lock};

/// `ENOSPC`: no space left on the device.
pub const ENOSPC: i32 = 28;
/// `EROFS`: the file system is read-only.
pub const EROFS: i32 = 30;
/// `EIO`: the device failed.
pub const EIO: i32 = 5;

/// Which operations fail, with which error number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads.
    pub reads: Option<i32>,
    /// Writes, of which the first half gets through, and changes of length.
    pub writes: Option<i32>,
    /// Syncs.
    pub syncs: Option<i32>,
    /// Making, renaming and removing files.
    pub names: Option<i32>,
}

impl Faults {
    /// A file system that was remounted read-only.
    pub const READ_ONLY: Self =
        Self { reads: None, writes: Some(EROFS), syncs: None, names: Some(EROFS) };
    /// A full file system: names can still be removed.
    pub const FULL: Self = Self { reads: None, writes: Some(ENOSPC), syncs: None, names: None };
    /// A device that answers nothing.
    pub const BROKEN: Self =
        Self { reads: Some(EIO), writes: Some(EIO), syncs: Some(EIO), names: Some(EIO) };
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: all it did so far is in the page cache.
    Kill,
    /// The machine loses power: only what was synced is certain.
    PowerLoss,
}

/// The disk. Only one store at a time may use it.
#[derive(Debug)]
pub struct FaultDisk {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    faults: Faults,
    /// Operations that change something until the process is dead.
    left: Option<u64>,
    dice: Dice,
    /// The file system cannot make holes.
    no_holes: bool,
    next_id: u64,
    /// Inode number of a file that exists now -> its history.
    by_inode: HashMap<u64, u64>,
    folders: HashSet<PathBuf>,
    histories: HashMap<u64, History>,
    /// Folder -> names promised.
    durable: BTreeMap<PathBuf, BTreeMap<PathBuf, u64>>,
    /// Changes of names since each folder's last sync, in order.
    renames: Vec<(PathBuf, NameChange)>,
    /// Alive while a store has the disk.
    lock: Weak<()>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Put(PathBuf, u64),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Debug, Default)]
struct History {
    durable: Vec<u8>,
    since: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl FaultDisk {
    /// A disk over an empty folder. `dice` decides what a crash leaves of what was not synced.
    pub fn new(root: impl Into<PathBuf>, dice: Dice) -> Self {
        let state = State {
            faults: Faults::default(),
            left: None,
            dice,
            no_holes: false,
            next_id: 0,
            by_inode: HashMap::new(),
            folders: HashSet::new(),
            histories: HashMap::new(),
            durable: BTreeMap::new(),
            renames: Vec::new(),
            lock: Weak::new(),
        };
        Self { root: root.into(), state: Mutex::new(state) }
    }

    /// From now on these operations fail.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Lets `operations` more changes through and cuts the next one in the middle; after that
    /// nothing works any more: the process is dead.
    pub fn die_after(&self, operations: u64) {
        self.state().left = Some(operations);
    }

    /// A file system that cannot give back parts of files.
    pub fn without_holes(self) -> Self {
        self.state().no_holes = true;
        self
    }

    /// Whether the death of [`Self::die_after`] has come.
    pub fn is_dead(&self) -> bool {
        self.state().left == Some(0)
    }

    /// Ends the process and starts the machine anew; the disk is sound again. The store must have
    /// been dropped, or must not be used any more.
    pub fn crash(&self, crash: Crash) -> io::Result<()> {
        let mut state = self.state();
        state.left = None;
        state.faults = Faults::default();
        if crash == Crash::Kill {
            return Ok(());
        }
        let names = state.surviving_names();
        let mut files = Vec::new();
        for (path, id) in names {
            files.push((path, state.surviving_content(id)));
        }
        state.by_inode.clear();
        state.histories.clear();
        state.durable.clear();
        state.renames.clear();
        remove_files(&self.root)?;
        for (path, content) in files {
            let file = File::create_new(self.root.join(&path))?;
            file.write_all_at(&content, 0)?;
            let id = state.adopt(&file, History { durable: content, since: Vec::new() })?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            state.durable.entry(folder).or_default().insert(path, id);
        }
        Ok(())
    }

    /// Bytes that the file system has allocated for all files.
    pub fn allocated_bytes(&self) -> io::Result<u64> {
        allocated(&self.root)
    }

    /// Flips one bit of a file, as a bad disk would.
    pub fn flip_bit(&self, path: &Path, at: u64) -> io::Result<()> {
        let file = File::options().read(true).write(true).open(self.root.join(path))?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        let [byte] = byte;
        file.write_all_at(&[byte ^ 1], at)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of names: does it (or, when the process dies in it, perhaps) and records it.
    fn change_names(
        &self,
        change: NameChange,
        folder: &Path,
        apply: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state();
        let lives = state.spend(|faults| faults.names)?;
        if lives || state.dice.below(2) == 0 {
            apply()?;
            state.renames.push((folder.to_owned(), change));
        }
        if lives { Ok(()) } else { Err(dead()) }
    }

    fn record(&self, file: &File, change: Change) -> io::Result<()> {
        let mut state = self.state();
        if let Some(id) = state.by_inode.get(&file.metadata()?.ino()).copied() {
            state.histories.entry(id).or_default().since.push(change);
        }
        Ok(())
    }
}

impl Disk for FaultDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        // Hundreds of folders that stay empty would cost most of a test's time: they are made
        // with their first file.
        self.state().folders.insert(path.to_owned());
        Ok(())
    }

    fn lock(&self) -> io::Result<Option<Lock>> {
        let mut state = self.state();
        state.check(|faults| faults.names)?;
        if state.lock.upgrade().is_some() {
            return Ok(None);
        }
        let lock = Arc::new(());
        state.lock = Arc::downgrade(&lock);
        Ok(Some(Box::new(lock)))
    }

    fn create_new(&self, path: &Path) -> io::Result<File> {
        match self.root.join(path).exists() {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => self.create(path),
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let mut state = self.state();
        let lives = state.spend(|faults| faults.names)?;
        if !lives && state.dice.below(2) == 0 {
            return Err(dead());
        }
        if state.folders.contains(&folder_of(path)) {
            fs::create_dir_all(self.root.join(folder_of(path)))?;
        }
        let existed = self.root.join(path).exists();
        let options = File::options().read(true).write(true).create(true).truncate(true).clone();
        let file = options.open(self.root.join(path))?;
        if existed {
            let id = state.by_inode.get(&file.metadata()?.ino()).copied();
            let history = id.and_then(|id| state.histories.get_mut(&id));
            if let Some(history) = history {
                history.since.push(Change::SetLen(0));
            }
        } else {
            let id = state.adopt(&file, History::default())?;
            state.renames.push((folder_of(path), NameChange::Put(path.to_owned(), id)));
        }
        if lives { Ok(file) } else { Err(dead()) }
    }

    fn open_read(&self, path: &Path) -> io::Result<File> {
        self.state().check(|faults| faults.reads)?;
        File::open(self.root.join(path))
    }

    fn open_write(&self, path: &Path) -> io::Result<File> {
        self.state().check(|faults| faults.names)?;
        File::options().read(true).write(true).open(self.root.join(path))
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.state().check(|faults| faults.reads)?;
        file.read_at(buffer, offset)
    }

    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let verdict = self.state().spend(|faults| faults.writes);
        let through = match &verdict {
            Ok(true) => bytes.len(),
            Ok(false) => usize::try_from(self.state().dice.below(bytes.len() as u64)).unwrap_or(0),
            Err(error) if error.raw_os_error().is_some() => bytes.len() / 2,
            Err(_) => 0,
        };
        let bytes = bytes.get(..through).unwrap_or(bytes);
        file.write_all_at(bytes, offset)?;
        self.record(file, Change::Write(offset, bytes.to_owned()))?;
        verdict.and_then(|lives| if lives { Ok(()) } else { Err(dead()) })
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        if !self.state().spend(|faults| faults.writes)? {
            return Err(dead());
        }
        file.set_len(len)?;
        self.record(file, Change::SetLen(len))
    }

    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        if self.state().no_holes {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if !self.state().spend(|faults| faults.writes)? {
            return Err(dead());
        }
        let end = file.metadata()?.len().min(offset.saturating_add(len));
        make_hole(file, offset, end)?;
        let zeros = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
        self.record(file, Change::Write(offset, vec![0; zeros]))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.state();
        if !state.spend(|faults| faults.syncs)? {
            return Err(dead());
        }
        let id = state.by_inode.get(&file.metadata()?.ino()).copied();
        if let Some(history) = id.and_then(|id| state.histories.get_mut(&id)) {
            for change in std::mem::take(&mut history.since) {
                change.apply(&mut history.durable);
            }
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.state();
        if !state.spend(|faults| faults.syncs)? {
            return Err(dead());
        }
        for (folder, change) in std::mem::take(&mut state.renames) {
            change.apply(state.durable.entry(folder).or_default());
        }
        for history in state.histories.values_mut() {
            for change in std::mem::take(&mut history.since) {
                change.apply(&mut history.durable);
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let change = NameChange::Move(from.to_owned(), to.to_owned());
        let (from, to) = (self.root.join(from), self.root.join(to));
        let folder = to.strip_prefix(&self.root).map(folder_of).unwrap_or_default();
        self.change_names(change, &folder, || fs::rename(&from, &to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let change = NameChange::Remove(path.to_owned());
        self.change_names(change, &folder_of(path), || fs::remove_file(self.root.join(path)))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state();
        state.check(|faults| faults.reads)?;
        let mut entries = Vec::new();
        let real = self.root.join(path);
        if state.folders.contains(path) && !real.exists() {
            return Ok(entries);
        }
        for entry in fs::read_dir(real)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                entries.push(Entry { name, allocated_bytes: metadata.blocks() * 512 });
            }
        }
        Ok(entries)
    }
}

impl State {
    /// Fails if such operations are set to fail, or the process is dead.
    fn check(&self, fault: impl FnOnce(&Faults) -> Option<i32>) -> io::Result<()> {
        if self.left == Some(0) {
            return Err(dead());
        }
        fault(&self.faults).map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }

    /// Like [`Self::check`] for an operation that changes something; `false`: this is the one
    /// that the process dies in.
    fn spend(&mut self, fault: impl FnOnce(&Faults) -> Option<i32>) -> io::Result<bool> {
        self.check(fault)?;
        let Some(left) = &mut self.left else { return Ok(true) };
        *left -= 1;
        Ok(*left > 0)
    }

    /// Gives a file that has just been made its history.
    fn adopt(&mut self, file: &File, history: History) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.by_inode.insert(file.metadata()?.ino(), id);
        self.histories.insert(id, history);
        Ok(id)
    }

    /// Each folder keeps a part, from the first on, of the changes since its last sync.
    fn surviving_names(&mut self) -> BTreeMap<PathBuf, u64> {
        let mut left: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for (folder, _) in &self.renames {
            *left.entry(folder.clone()).or_default() += 1;
        }
        for count in left.values_mut() {
            *count = self.dice.below(*count + 1);
        }
        for (folder, change) in std::mem::take(&mut self.renames) {
            if let Some(count) = left.get_mut(&folder).filter(|count| **count > 0) {
                *count -= 1;
                change.apply(self.durable.entry(folder).or_default());
            }
        }
        self.durable.values().flatten().map(|(path, id)| (path.clone(), *id)).collect()
    }

    /// Each unsynced change is there, lost, or (a write) there in part, sector by sector.
    fn surviving_content(&mut self, id: u64) -> Vec<u8> {
        let Some(history) = self.histories.remove(&id) else { return Vec::new() };
        let mut content = history.durable;
        for change in history.since {
            match (self.dice.below(3), change) {
                (0, _) => {}
                (1, change) => change.apply(&mut content),
                (_, Change::Write(offset, bytes)) => {
                    for (sector, at) in bytes.chunks(512).zip((offset..).step_by(512)) {
                        if self.dice.below(2) == 0 {
                            Change::Write(at, sector.to_owned()).apply(&mut content);
                        }
                    }
                }
                (_, change) => change.apply(&mut content),
            }
        }
        content
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Put(path, id) => {
                names.insert(path, id);
            }
            Self::Move(from, to) => {
                if let Some(id) = names.remove(&from) {
                    names.insert(to, id);
                }
            }
            Self::Remove(path) => {
                names.remove(&path);
            }
        }
    }
}

impl Change {
    fn apply(self, content: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => content.resize(usize::try_from(len).unwrap_or(0), 0),
            Self::Write(offset, bytes) => {
                let start = usize::try_from(offset).unwrap_or(0);
                let end = start + bytes.len();
                content.resize(content.len().max(end), 0);
                if let Some(range) = content.get_mut(start..end) {
                    range.copy_from_slice(&bytes);
                }
            }
        }
    }
}

/// A hole by safe means: what is behind it is cut off and written again, but for what is zero.
fn make_hole(file: &File, start: u64, end: u64) -> io::Result<()> {
    let len = file.metadata()?.len();
    let mut behind = vec![0; usize::try_from(len.saturating_sub(end)).unwrap_or(0)];
    file.read_exact_at(&mut behind, end)?;
    file.set_len(start)?;
    file.set_len(len)?;
    for (unit, at) in behind.chunks(4096).zip((end..).step_by(4096)) {
        if unit.iter().any(|byte| *byte != 0) {
            file.write_all_at(unit, at)?;
        }
    }
    Ok(())
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

fn remove_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove_files(&entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

fn allocated(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => allocated(&entry.path())?,
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}
