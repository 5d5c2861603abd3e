"""Real programs of many kinds, as shell scripts. $D is the folder with data, the working directory is writable.

`needs` names commands, or modules of a Python (`PYTHON:module`; of ours without its name). A program that lacks one is
reported as missing.
"""

from __future__ import annotations

import functools
import importlib.util
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """One real program."""

    kind: str
    name: str
    needs: str
    script: str

    def missing(self) -> list[str]:
        """Return what the program needs and this machine lacks."""
        return [need for need in self.needs.split() if not _found(need)]


SEARCH = "/usr/sbin:/sbin:/usr/lib/postgresql/15/bin:/usr/games"


def _found(need: str) -> bool:
    command, _, module = need.partition(":")
    if module:
        return _has_module(command, module)
    return shutil.which(need) is not None or shutil.which(need, path=SEARCH) is not None


def _has_module(python: str, module: str) -> bool:
    if not python:
        return importlib.util.find_spec(module) is not None
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return Path(python).exists() and subprocess.run([python, "-c", find], timeout=60).returncode == 0


RUST = f"RUSTUP_HOME={Path.home()}/.rustup CARGO_HOME={Path.home()}/.cargo"
"""Variables that let another user run the compiler of the user who started this."""
PY = sys.executable
"""A Python with the modules of the tests, which a user may reach through a capability only."""
LIBRARY = sysconfig.get_path("stdlib")
PLAIN = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
_TABLE = rf"""
compiler | gcc -O2 | gcc | gcc -O2 -c $D/big.c -o big.o
compiler | gcc -O0, link | gcc | gcc -g $D/big.c -o big
compiler | g++ templates | g++ | g++ -O2 -std=c++17 -c $D/big.cc -o big.o
compiler | rustc -O | rustc | {RUST} rustc -O -C link-arg=-fuse-ld=bfd --edition 2021 $D/big.rs -o big
compiler | go build | go | GOCACHE=$HOME GOFLAGS=-mod=mod go build -o big $D/big.go
compiler | clang -O2 | clang | clang -O2 -c $D/big.c -o big.o
compiler | tcc | tcc | tcc -c $D/big.c -o big.o
compiler | nasm | nasm | nasm -f elf64 $D/big.asm -o big.o
compiler | ocamlopt | ocamlopt | cp $D/big.ml . && ocamlopt -o big big.ml
compiler | javac | javac | javac -d . $D/Big.java
compiler | bison, flex | bison flex | bison $D/big.y -o y.c && flex -o l.c $D/big.l
compiler | cargo build | cargo | cp -r $D/crate . && {RUST} CARGO_HOME=$HOME/c cargo build -q --release --offline --manifest-path crate/Cargo.toml --config 'target.x86_64-unknown-linux-gnu.rustflags=["-Clink-arg=-fuse-ld=bfd"]'
compiler | gfortran | gfortran | gfortran -O3 -o big $D/big.f90 && ./big
compiler | lld, link-time optimization | clang ld.lld | clang -O2 -flto -fuse-ld=lld $D/big.c -o big
compiler | mold | gcc mold | gcc -g -fuse-ld=mold $D/big.c -o big
compiler | ghc | ghc | cp $D/Big.hs . && ghc -O Big.hs >/dev/null && ./Big
compiler | erlang | erlc | cp $D/big.erl . && erlc big.erl && erl -noshell -s big main -s init stop
build | make -j2 | make gcc | cp -r $D/project . && make -s -j2 -C project
build | cmake, ninja | cmake ninja g++ | cmake -G Ninja -S $D/cmake -B b >/dev/null && ninja -C b
build | m4 | m4 | m4 -Dn=40000 $D/loop.m4
build | make -j4, short recipes | make | make -s -j4 -f $D/many/Makefile >/dev/null
build | meson, ninja | meson gcc | meson setup b $D/cmake >/dev/null && ninja -C b
build | venv, pip | {PLAIN}:ensurepip | {PLAIN} -m venv v && v/bin/pip list >/dev/null
build | pip wheel | :setuptools | cp -r $D/pkg . && {PY} -m pip wheel -q --no-deps --no-build-isolation --no-cache-dir -w w ./pkg
build | npm install | npm | npm install --offline --no-audit --no-fund --cache $HOME/c $D/npm >/dev/null
build | pytest -n 2 | :pytest :xdist | cp $D/many_test.py . && {PY} -m pytest -q -n 2 -p no:cacheprovider many_test.py
build | mypy | :mypy | {PY} -m mypy --cache-dir=$HOME/c --ignore-missing-imports $D/app.py $D/pool.py $D/many_test.py
build | ruff | :ruff | {PY} -m ruff check --no-cache --exit-zero {LIBRARY} >/dev/null
build | compileall -j2 | {PLAIN} | cp -r {LIBRARY}/email {LIBRARY}/asyncio {LIBRARY}/unittest . && {PLAIN} -m compileall -q -j2 .
archiver | tar | tar | tar cf a.tar -C $D tree && mkdir x && tar xf a.tar -C x
archiver | gzip -9 | gzip | gzip -9c $D/words.log >a.gz && gzip -dc a.gz >/dev/null
archiver | pigz | pigz | pigz -c $D/words.log >a.gz
archiver | xz -T2 | xz | head -c 12000000 $D/words.log >w && xz -T2 -3 --block-size=4MiB -c w >a.xz
archiver | zstd -T2 --long | zstd | zstd -q -T2 --long -12 -c $D/words.log >a.zst
archiver | bzip2 | bzip2 | head -c 12000000 $D/words.log | bzip2 -c >a.bz2
archiver | lz4 | lz4 | lz4 -q -c $D/words.log >a.lz4
archiver | 7z | 7z | head -c 16000000 $D/words.log >w && 7z a -bd a.7z w >/dev/null
archiver | zip | zip | zip -qr a.zip $D/tree
archiver | brotli | brotli | head -c 8000000 $D/words.log >w && brotli -q 9 w -o w.br
archiver | tar, gzip | tar gzip | tar czf a.tgz -C $D tree words.log && tar tzf a.tgz >/dev/null
archiver | zstd --ultra -T0 | zstd | head -c 16000000 $D/words.log | zstd -q --ultra -20 -T0 -c >a.zst && zstd -dc a.zst >/dev/null
archiver | mksquashfs | mksquashfs unsquashfs | mksquashfs $D/tree a.img -quiet -no-progress >/dev/null && unsquashfs -q -n -d x a.img >/dev/null
archiver | cpio, unzip | cpio zip unzip | (cd $D && find tree | cpio -o --quiet) >a.cpio && mkdir x && (cd x && cpio -id --quiet <../a.cpio && zip -qr ../a.zip tree) && unzip -q a.zip
archiver | dpkg-deb | dpkg-deb fakeroot | mkdir -p p/DEBIAN && cp -r $D/tree p && printf 'Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n' >p/DEBIAN/control && fakeroot dpkg-deb -b p a.deb >/dev/null && dpkg-deb -x a.deb x
text | sort | sort | sort $D/words.log -o sorted
text | sort, temporary files | sort | sort -S 16M -T . $D/words.log -o sorted
text | grep -c | grep | grep -c 'a.*b.*c' $D/words.log
text | rg | rg | sleep 0.2; rg zzzzz $D/words.log; rg -c ab $D/words.log
text | sed | sed | sed 's/a/bb/g' $D/words.log >out
text | mawk arrays | mawk | mawk '{{ n[$0]++ }} END {{ for (k in n) c++; print c }}' $D/words.log
text | gawk arrays | gawk | head -c 16000000 $D/words.log | gawk '{{ n[$1]++ }} END {{ print length(n) }}'
text | jq | jq | jq '[.[] | .a] | add' $D/big.json
text | xmllint | xmllint | xmllint --noout $D/big.xml
text | diff | diff | head -c 8000000 $D/words.log >a && sed '5~97d' a >b; diff a b >c; true
text | cut, sort, uniq | cut uniq | cut -c1-2 $D/words.log | sort | uniq -c | sort -rn | head
text | groff | groff | groff -Tascii -man $D/big.1 >out
text | perl -ne | perl | perl -ne '$n{{length $_}}++; $c++ while /a+b/g; END {{ print $c }}' $D/words.log
text | sort -u --parallel | sort | sort -u --parallel=4 -S 64M -T . $D/words.log | comm -3 - /dev/null | wc -l
text | grep -r | grep | grep -rc abc $D/tree >/dev/null; grep -rn main /usr/include >/dev/null; true
text | vim -es | vim | head -c 12000000 $D/words.log >w && vim -u NONE -n -es -c '%s/a/bb/ge' -c 'g/^7/d' -c 'wq' w
text | emacs --batch | emacs | head -c 8000000 $D/words.log >w && emacs --batch w --eval '(progn (sort-lines nil (point-min) (point-max)) (save-buffer))' 2>/dev/null
text | pandoc | pandoc | pandoc -f markdown -t html $D/big.md -o a.html
text | pdflatex | pdflatex | pdflatex -interaction=batchmode $D/big.tex >/dev/null
database | sqlite3 | sqlite3 | sqlite3 a.db < $D/big.sql
database | postgres, pgbench | initdb pgbench | P=/usr/lib/postgresql/15/bin; U=; [ $(id -u) = 0 ] && U="setpriv --reuid 65534 --regid 65534 --clear-groups" && chown -R 65534 $HOME; $U $P/initdb -D db >/dev/null && $U $P/pg_ctl -w -D db -o "-k $HOME -h ''" -l log start >/dev/null && $P/pgbench -q -i -s 3 -h $HOME -U $($U whoami) postgres 2>/dev/null; $P/pgbench -c 4 -T 2 -h $HOME -U $($U whoami) postgres >/dev/null; $U $P/pg_ctl -w -D db stop >/dev/null
database | redis | redis-server redis-cli | redis-server --enable-debug-command yes --port 0 --unixsocket $HOME/s --save '' >/dev/null & for n in 1 2 3 4 5 6 7 8 9; do sleep 0.2; redis-cli -s $HOME/s debug populate 200000 k 100 && break; done; redis-cli -s $HOME/s shutdown nosave; wait
database | redis, snapshot | redis-server redis-cli | redis-server --enable-debug-command yes --port 0 --unixsocket $HOME/s --save '' >/dev/null & for n in 1 2 3 4 5 6 7 8 9; do sleep 0.2; redis-cli -s $HOME/s debug populate 300000 k 100 && break; done; redis-cli -s $HOME/s bgsave; redis-cli -s $HOME/s debug populate 300000 k 120; sleep 1; redis-cli -s $HOME/s shutdown nosave; wait
database | memcached | memcached | memcached -u nobody -m 64 -s $HOME/s & sleep 0.3; {PLAIN} $D/memcached.py $HOME/s; kill $!; wait; true
database | duckdb | :duckdb | {PY} -c 'import duckdb; print(duckdb.sql("select count(distinct i * 7 % 900001) from range(3000000) t(i)"))'
database | sqlite3 .import | sqlite3 | sqlite3 a.db '.mode list' '.separator " "' 'create table t (a, b)' '.import '$D'/words.log t' 'create index i on t (b)' 'select count(distinct b) from t' 'vacuum'
database | sqlite3 in /dev/shm | sqlite3 | d=$(mktemp -d /dev/shm/memwatch.XXXX); sqlite3 $d/a.db <$D/big.sql; sqlite3 $d/a.db 'select count(*) from t where b > "row 5"'; rm -r $d
database | mariadb | mariadb-install-db mariadbd mariadb | U=; [ $(id -u) = 0 ] && U="--user=nobody" && chown -R 65534 $HOME; mariadb-install-db $U --datadir=$HOME/db --skip-test-db --auth-root-authentication-method=normal >/dev/null; mariadbd --no-defaults $U --datadir=$HOME/db --socket=$HOME/s --skip-networking --pid-file=$HOME/pid >/dev/null 2>&1 & for n in 1 2 3 4 5 6 7 8 9; do sleep 0.3; [ -S $HOME/s ] && break; done; mariadb -u root -S $HOME/s -e 'create database a; use a; create table t (a int, b text); insert into t select seq, repeat("x", 100) from seq_1_to_100000; select count(distinct b) from t; shutdown' >/dev/null; wait; true
database | polars | :polars | {PY} -c 'import polars as p; d = p.DataFrame({{"a": range(1500000)}}).with_columns(b=p.col("a") % 1000); print(d.group_by("b").agg(p.col("a").sum()).sort("b"))'
database | duckdb csv, join | :duckdb | {PY} -c 'import duckdb as d; d.sql("create table t as select * from read_csv(\"'$D'/words.log\", delim=\" \", header=false, all_varchar=true)".replace(chr(34), chr(39))); print(d.sql("select count(*) from t a join t b using (column1)"))'
browser | chromium screenshot | chromium | chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=$HOME/p --screenshot=$HOME/s.png file://$D/page.html >/dev/null 2>&1
browser | chromium, /dev/shm | chromium | chromium --headless --no-sandbox --disable-gpu --user-data-dir=$HOME/p --dump-dom file://$D/page.html >/dev/null 2>&1
browser | firefox | firefox-esr | mkdir $HOME/p; firefox-esr --headless --no-remote --profile $HOME/p --screenshot $HOME/s.png file://$D/page.html
jvm | java heap | java | java -Xmx300m -cp $D/classes Big
jvm | java, serial collector | java | java -XX:+UseSerialGC -Xmx200m -cp $D/classes Big
jvm | java, ZGC | java | java -XX:+UseZGC -Xmx300m -cp $D/classes Big
jvm | java, Shenandoah | java | java -XX:+UseShenandoahGC -Xmx300m -cp $D/classes Big
jvm | java, parallel, pretouched | java | java -XX:+UseParallelGC -XX:+AlwaysPreTouch -Xms160m -Xmx160m -cp $D/classes Big
jvm | java, huge pages | java | java -XX:+UseTransparentHugePages -Xmx300m -cp $D/classes Big
jvm | jshell | jshell | echo 'System.out.println(java.util.stream.LongStream.range(0, 9999999).sum())' | jshell -s - >/dev/null
node | node arrays | node | node -e 'let a = []; for (let i = 0; i < 2e6; i++) a.push({{i, s: "x" + i}}); console.log(a.length)'
node | node, 3 workers | node | node $D/workers.js
node | npm | npm | npm --version
node | node cluster | node curl | node $D/cluster.js & sleep 1; for n in 1 2 3 4; do curl -s --unix-socket $HOME/s http://x/ >/dev/null; done; kill $!; wait; true
node | node, shared buffer | node | node -e 'const {{ Worker }} = require("worker_threads"); const b = new SharedArrayBuffer(80 << 20); let n = 3; for (let i = 0; i < 3; i++) new Worker("const {{ workerData: w }} = require(\"worker_threads\"); new Uint8Array(w).fill(7)", {{ eval: true, workerData: b }})'
node | node, zlib | node | node -e 'const z = require("zlib"), f = require("fs"); f.writeFileSync("a.gz", z.gzipSync(f.readFileSync(process.env.D + "/words.log")))'
data | python objects | {PLAIN} | {PLAIN} -c 'a = [str(i) for i in range(1500000)]; b = dict(zip(a, a))'
data | numpy | :numpy | {PY} -c 'import numpy as n; a = n.random.rand(1500, 1500); (a @ a).sum(); n.sort(n.random.rand(8000000))'
data | pandas | :pandas | {PY} -c 'import pandas as p, numpy as n; d = p.DataFrame(n.random.rand(600000, 6)); d[6] = (d[0] * 50).astype(int); print(d.groupby(6).mean().merge(d, on=6).shape)'
data | pyarrow | :pyarrow | {PY} -c 'import pyarrow as a, pyarrow.compute as c; t = a.table({{"x": list(range(2000000))}}); print(c.sum(t["x"]))'
data | scipy | :scipy | {PY} -c 'import scipy.sparse as s, scipy.sparse.linalg as l; m = s.random(4000, 4000, 0.002, format="csc") + s.eye(4000); l.splu(m.tocsc())'
data | scikit-learn | {PLAIN}:sklearn | {PLAIN} -c 'import numpy as n; from sklearn.ensemble import RandomForestClassifier as R; R(20, n_jobs=2).fit(n.random.rand(20000, 10), n.random.randint(0, 2, 20000))'
data | torch | :torch | {PY} -c 'import torch; m = torch.nn.Linear(2000, 2000); m(torch.rand(2000, 2000)).sum().backward()'
data | matplotlib | :matplotlib | MPLBACKEND=agg {PY} -c 'import matplotlib.pyplot as p; p.plot(range(200000)); p.savefig("a.png", dpi=200)'
data | sympy | :sympy | {PY} -c 'import sympy as s; x, y = s.symbols("x y"); s.expand((x + y + 1) ** 40)'
data | pool, fork | {PLAIN} | {PLAIN} $D/pool.py fork
data | pool, spawn | {PLAIN} | {PLAIN} $D/pool.py spawn
data | pool, forkserver | {PLAIN} | {PLAIN} $D/pool.py forkserver
data | pool, workers replaced | {PLAIN} | {PLAIN} $D/pool.py replaced
data | copies after fork | {PLAIN} | {PLAIN} $D/copies.py
data | shared_memory | {PLAIN} | {PLAIN} $D/shared.py
data | R | Rscript | Rscript -e 'a <- matrix(runif(4e6), 2000); print(sum(a %*% a))'
data | octave | octave | octave --eval 'a = rand(1500); sum(sum(a * a))'
data | gnuplot | gnuplot | gnuplot -e 'set term svg; set output "a.svg"; set samples 100000; plot sin(x)'
data | mpirun -n 2 | mpirun | mpirun --allow-run-as-root --oversubscribe -n 2 {PLAIN} -c 'a = bytearray(40 << 20); import time; time.sleep(0.5)'
data | numpy memmap | :numpy | {PY} -c 'import numpy as n; a = n.memmap("a", dtype="u1", mode="w+", shape=80 << 20); a[:] = 1; a.flush(); print(int(a[::4096].sum()))'
data | shared anonymous mapping | {PLAIN} | {PLAIN} -c 'import mmap, os, time; m = mmap.mmap(-1, 70 << 20); os.fork() or (m.write(b"x" * (50 << 20)), os._exit(0)); os.wait(); m.close(); time.sleep(0.3)'
data | memfd | {PLAIN} | {PLAIN} -c 'import os, time; f = os.memfd_create("a"); [os.write(f, b"x" * (1 << 20)) for _ in range(60)]; time.sleep(0.3); os.close(f); time.sleep(0.2)'
data | System V segment | perl | perl -e '$i = shmget(0, 60 << 20, 01600); shmwrite($i, "x" x (60 << 20), 0, 60 << 20); select(undef, undef, undef, 0.3); shmctl($i, 0, 0)'
data | ProcessPoolExecutor, arrays | :numpy | {PY} $D/executor.py
data | dask | :dask :numpy | {PY} -c 'import dask.array as d; print(d.random.random((4000, 3000), chunks=(1000, 3000)).std(axis=0).mean().compute(num_workers=2))'
data | pillow | :PIL | {PY} -c 'from PIL import Image, ImageFilter; i = Image.effect_noise((4000, 3000), 50).convert("RGB"); i.filter(ImageFilter.GaussianBlur(3)).save("a.png")'
data | R, mclapply | Rscript | Rscript -e 'library(parallel); a <- runif(3e6); print(sum(unlist(mclapply(1:4, function(i) sum(sort(a * i)), mc.cores=2))))'
data | bwa, samtools | bwa samtools | cp $D/big.fa . && bwa index big.fa 2>/dev/null && bwa mem -t 2 big.fa $D/reads.fa 2>/dev/null | samtools sort -@ 2 -m 20M -o a.bam 2>/dev/null
data | pari | gp | echo 'print(#factor(2^211-1)[,1]); v = vector(400000, i, i^3); print(#v)' | gp -q -s 200M
data | z3 | z3 | z3 -T:20 $D/big.smt2
data | glpsol | glpsol | glpsol --cuts --tmlim 2 -m $D/big.mod >/dev/null
language | perl | perl | perl -e 'for (1 .. 1200000) {{ $h{{$_}} = "x" x 20 }} print scalar keys %h'
language | ruby, 3 forks | ruby | ruby $D/forks.rb
language | lua | lua5.4 | lua5.4 -e 't = {{}} for i = 1, 2000000 do t[i] = tostring(i) end print(#t)'
language | php | php | php -d memory_limit=-1 -r '$a = []; for ($i = 0; $i < 1500000; $i++) $a[] = "x$i"; echo count($a);'
language | tclsh | tclsh | tclsh $D/big.tcl
language | guile | guile | guile --no-auto-compile -c '(display (length (map number->string (iota 1000000))))'
language | sbcl | sbcl | sbcl --noinform --non-interactive --eval '(print (length (loop for i below 1500000 collect (cons i i))))'
language | perl fork | perl | perl -e '@a = map {{ "x$_" }} 1 .. 400000; for (1 .. 3) {{ next if fork; $_ .= "y" for @a; select(undef, undef, undef, 0.5); exit }} 1 while wait > 0'
language | ruby threads | ruby | ruby -e '4.times.map {{ |i| Thread.new {{ (0...200000).map {{ |n| "#{{i}}#{{n}}" }}.sort.size }} }}.each(&:join)'
language | python asyncio | {PLAIN} | {PLAIN} $D/processes.py
media | ffmpeg x264 | ffmpeg | ffmpeg -v error -f lavfi -i testsrc2=s=1280x720:d=2 -c:v libx264 -preset fast a.mp4
media | imagemagick | /usr/bin/convert | /usr/bin/convert -size 2500x2500 plasma: -blur 0x3 a.png
media | ghostscript, pdftotext | gs pdftotext | gs -q -dNOPAUSE -dBATCH -sDEVICE=pdfwrite -sOutputFile=a.pdf $D/big.ps && pdftotext a.pdf
media | dot | dot | dot -Tsvg $D/big.dot -o a.svg
media | ffmpeg scale, opus | ffmpeg | ffmpeg -v error -f lavfi -i testsrc2=s=1920x1080:d=1 -f lavfi -i sine=d=20 -vf scale=640:360 -c:v mpeg4 -c:a libopus a.mkv
media | pdftoppm | gs pdftoppm | gs -q -dNOPAUSE -dBATCH -sDEVICE=pdfwrite -sOutputFile=a.pdf $D/big.ps && pdftoppm -r 60 -png a.pdf p
media | sox | sox | sox -n -r 48000 a.wav synth 60 sine 300 && sox a.wav b.wav reverse
media | povray | povray | povray +I$D/big.pov +Oa.png +W400 +H300 -D >/dev/null 2>&1
server | python http.server | curl | {PLAIN} -m http.server --bind 127.0.0.1 -d $D 18431 >/dev/null 2>&1 & sleep 1; for n in 1 2 3; do curl -s http://127.0.0.1:18431/words.log >/dev/null; done; kill $!; wait; true
server | nginx | nginx curl | nginx -p $HOME -e log -c $D/nginx.conf & sleep 0.7; for n in 1 2 3; do curl -s --unix-socket $HOME/s http://x/words.log >/dev/null; done; nginx -p $HOME -e log -c $D/nginx.conf -s stop; wait
server | node http | node curl | node $D/server.js & sleep 0.7; for n in 1 2 3; do curl -s --unix-socket $HOME/s http://x/ >/dev/null; done; kill $!; wait; true
server | prometheus | prometheus | timeout 3 prometheus --config.file=$D/prometheus.yml --storage.tsdb.path=$HOME/d --web.listen-address=127.0.0.1:18432 --log.level=error; true
server | flask | :flask curl | {PY} $D/app.py $HOME/s & sleep 1.5; for n in 1 2 3; do curl -s --unix-socket $HOME/s http://x/ >/dev/null; done; kill $!; wait; true
server | apache2 prefork | apache2 curl | setsid apache2 -DFOREGROUND -f $D/apache.conf & sleep 0.7; for n in 1 2 3; do curl -s http://127.0.0.1:18434/words.log >/dev/null; done; kill $!; wait; true
server | lighttpd | lighttpd curl | lighttpd -D -f $D/lighttpd.conf & sleep 0.5; for n in 1 2 3; do curl -s http://127.0.0.1:18435/words.log >/dev/null; done; kill $!; wait; true
server | php -S, workers | php curl | PHP_CLI_SERVER_WORKERS=3 php -S 127.0.0.1:18433 $D/page.php >/dev/null 2>&1 & sleep 0.6; for n in 1 2 3 4; do curl -s http://127.0.0.1:18433/ >/dev/null; done; kill $!; wait; true
server | gunicorn --preload | :gunicorn curl | {PY} -m gunicorn --preload -w 3 -b unix:$HOME/s --chdir $D wsgi:app >/dev/null 2>&1 & sleep 2; for n in 1 2 3 4; do curl -s --unix-socket $HOME/s http://x/ >/dev/null; done; kill $!; wait; true
tool | git repack, gc, log | git | cp -r $D/tree t && cd t && git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm a && git repack -adq && git gc -q && git log --stat >/dev/null
tool | rsync | rsync | rsync -a $D/tree copy && rsync -ac $D/tree copy
tool | find / | find | find /usr -type f -size +1M >/dev/null
tool | cp, dd, cat | cp dd | cp $D/words.log a; dd if=a of=b bs=4M status=none; cat a b >/dev/null
tool | sha256sum | sha256sum | sha256sum $D/words.log $D/tree/*/*
tool | openssl enc | openssl | openssl enc -aes-256-cbc -pbkdf2 -k a -in $D/words.log -out a
tool | gpg | gpg | mkdir -m 700 g && head -c 8000000 $D/words.log | gpg --homedir g --batch --pinentry-mode loopback --passphrase a -c -o a; gpgconf --homedir g --kill all
tool | strace | strace | strace -f -o log ls -R $D/tree >/dev/null
tool | valgrind | valgrind | valgrind -q --tool=memcheck ls $D >/dev/null 2>&1
tool | gdb | gdb | gdb -batch -ex 'info functions main' {PLAIN} >/dev/null 2>&1
tool | docker client | docker | docker --version
tool | mmap reader | {PLAIN} | {PLAIN} -c 'import mmap; f = open("'$D'/words.log"); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(sum(m[i] for i in range(0, len(m), 4096)))'
tool | mmap reader, large folios | {PLAIN} dd | dd if=/dev/zero of=a bs=1M count=150 status=none; {PLAIN} -c 'import mmap; f = open("a"); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); print(sum(m[i] for i in range(0, len(m), 4096)))'
tool | git clone, fsck, grep | git | cp -r $D/tree t && git init -q t && cd t && git add -A && git -c user.name=a -c user.email=a@b commit -qm a && cd .. && git clone -q --no-local t c && git -C c fsck 2>/dev/null && git -C c grep -c abc >/dev/null; true
tool | ssh-keygen | ssh-keygen | ssh-keygen -q -t rsa -b 4096 -N '' -f k
tool | openssl speed -multi | openssl | openssl speed -seconds 1 -multi 2 sha256 >/dev/null 2>&1
tool | find, xargs | xargs | find $D/tree -type f | xargs -n 40 -P 3 sha1sum | sort >/dev/null
tool | qemu | qemu-system-x86_64 | timeout 3 qemu-system-x86_64 -accel tcg -m 128 -display none -nodefaults; true
tool | fio, mapped | fio | fio --name=a --rw=randrw --size=24m --bs=16k --ioengine=mmap --numjobs=2 --group_reporting >/dev/null
tool | stockfish | stockfish | (printf 'setoption name Hash value 64\nsetoption name Threads value 2\ngo movetime 1500\n'; sleep 2) | PATH=$PATH:/usr/games stockfish >/dev/null
tool | hugo | hugo | hugo -s $D/site -d $HOME/public --quiet --noBuildLock --cacheDir $HOME/c
tool | mandb | mandb | mandb -q -c -u $HOME/m 2>/dev/null; true
tool | localedef | localedef | localedef -i de_DE -f UTF-8 ./de 2>/dev/null; true
tool | apt-cache | apt-cache | apt-cache -o Dir::Cache=$HOME search --names-only zlib >/dev/null
shell | bash | bash | bash -c 'a=(); for ((i = 0; i < 200000; i++)); do a+=("x$i"); done; echo ${{#a[@]}}'
shell | zsh | zsh | zsh -c 'a=(); for i in {{1..200000}}; do a+=("x$i"); done; echo $#a'
shell | busybox | busybox | busybox sort $D/words.log >/dev/null
shell | configure-like | sh | i=0; while [ $i -lt 150 ]; do echo "int main(){{}}" >c$i; grep -q main c$i && sed s/i/j/ c$i | sort >/dev/null; i=$((i+1)); done
shell | xargs -P4 | xargs | seq 8 | xargs -P4 -I_ {PLAIN} -c 'a = bytearray(30 << 20); import time; time.sleep(0.2)'
shell | parallel | parallel | seq 12 | parallel -n0 -j4 'head -c 20000000 /dev/zero | sort -z | wc -c'
shell | nested shells, daemon | sh | sh -c '({PLAIN} -c "a = bytearray(80 << 20); import time; time.sleep(0.8)" &) ; {PLAIN} -c "a = bytearray(60 << 20); import time; time.sleep(1)"'; sleep 0.3
shell | double fork | setsid | setsid -f {PLAIN} -c 'a = bytearray(70 << 20); import time; time.sleep(0.8)'; sleep 1.2
shell | files in /dev/shm | dd | f=$(mktemp /dev/shm/memwatch.XXXX); dd if=/dev/zero of=$f bs=1M count=100 status=none; md5sum $f >/dev/null; sleep 0.3; rm $f
shell | brief file in /dev/shm | dd | f=$(mktemp /dev/shm/memwatch.XXXX); dd if=/dev/zero of=$f bs=1M count=60 status=none; rm $f; sleep 0.3
shell | pipeline | gzip | head -c 32000000 $D/words.log | tr a-z A-Z | gzip -c | gzip -dc | sort -u | wc -l
shell | fish | fish | fish -c 'set a; for i in (seq 30000); set -a a x$i; end; count $a'
shell | ksh | ksh | ksh -c 'a=(); i=0; while ((i < 100000)); do a[i]=x$i; ((i++)); done; echo ${{#a[@]}}'
shell | while read | bash | head -3000 $D/words.log | bash -c 'while read -r a b; do c=$(echo $a | cut -c1-3); n=$((n + ${{#c}})); done; echo $n'
shell | process substitution | bash | bash -c 'diff <(head -c 3000000 $D/words.log | sort) <(head -c 3000000 $D/words.log | sort -r) | wc -l'
shell | yes, head | yes | yes | head -c 400000000 >/dev/null; yes | head -n 9000000 | tail -n 1
shell | tmux | tmux | tmux -S $HOME/s -f /dev/null new-session -d 'seq 300000; sleep 0.4'; sleep 1; tmux -S $HOME/s kill-server; true
shell | sort -T /dev/shm | sort | d=$(mktemp -d /dev/shm/memwatch.XXXX); head -c 24000000 $D/words.log | sort -S 4M -T $d >sorted; rm -r $d
shell | copies in /dev/shm | cp | d=$(mktemp -d /dev/shm/memwatch.XXXX); cp -r $D/tree $d; tar cf $d/a.tar -C $d tree; sleep 0.2; rm -r $d; sleep 0.1
"""

PROGRAMS = [Program(*(cell.strip() for cell in line.split(" | ", 3))) for line in _TABLE.strip().splitlines()]

_FILES = {
    "big.cc": "#include <map>\n#include <string>\n#include <vector>\n#include <regex>\n#include <iostream>\n"
    + "".join(
        f"std::map<std::string, std::vector<int>> f{n}(std::string s)"
        f"{{ std::regex r(s); std::map<std::string, std::vector<int>> m; m[s].push_back({n}); return m; }}\n"
        for n in range(20)
    ),
    "big.rs": 'use std::collections::HashMap;\nfn main() { let mut m = HashMap::new(); for i in 0..100 { m.insert(i, i.to_string()); } println!("{}", m.len()); }\n',
    "big.go": 'package main\n\nimport (\n\t"fmt"\n\t"net/http"\n)\n\nfunc main() { fmt.Println(http.StatusOK) }\n',
    "big.ml": "".join(f"let f{n} x = List.map (fun y -> y + {n}) [x; x; x]\n" for n in range(3000)),
    "big.y": "%%\n" + "\n".join(f"r{n}: 'a' r{n + 1} | 'b' ;" for n in range(1500)) + "\nr1500: 'c' ;\n%%\n",
    "big.l": "%%\n" + "\n".join(f"word{n} return {n};" for n in range(800)) + "\n%%\n",
    "Big.java": "import java.util.*;\npublic class Big { public static void main(String[] a) { Map<Integer, String> m = new HashMap<>();"
    ' for (int i = 0; i < 1000000; i++) m.put(i, "x" + i); System.out.println(m.size()); } }\n',
    "loop.m4": "define(`loop', `ifelse($1, 0, , `word$1 loop(decr($1))')')loop(3000)\n",
    "workers.js": "const { Worker, isMainThread } = require('worker_threads');\n"
    "if (isMainThread) for (let n = 0; n < 3; n++) new Worker(__filename);\n"
    "else { const a = []; for (let i = 0; i < 500000; i++) a.push({ i, s: 'x' + i }); console.log(a.length); }\n",
    "server.js": "require('http').createServer((q, r) => r.end(Buffer.alloc(20 << 20, 1))).listen(process.env.HOME + '/s');\n",
    "pool.py": "import multiprocessing as m, sys, time\n"
    "def work(n):\n    a = bytearray((20 + n) << 20); time.sleep(0.2); return len(a)\n"
    "if __name__ == '__main__':\n    how = sys.argv[1]; kept = bytearray(60 << 20)\n"
    "    c = m.get_context('fork' if how == 'replaced' else how)\n"
    "    with c.Pool(3, maxtasksperchild=1 if how == 'replaced' else None) as p: print(sum(p.map(work, range(8), 1)))\n",
    "copies.py": "import os, time\na = [[n] for n in range(600000)]\nfor _ in range(3):\n    if os.fork() == 0:\n"
    "        sum(len(x) for x in a); kept = list(a); time.sleep(1.5); os._exit(0)\nfor _ in range(3): os.wait()\n",
    "shared.py": "from multiprocessing import shared_memory as s, Process\nimport time\n"
    "def work(name):\n    m = s.SharedMemory(name); m.buf[:] = bytes(len(m.buf)); time.sleep(0.4); m.close()\n"
    "if __name__ == '__main__':\n    m = s.SharedMemory(create=True, size=60 << 20); p = [Process(target=work, args=(m.name,)) for _ in range(3)]\n"
    "    [q.start() for q in p]; [q.join() for q in p]; m.close(); m.unlink()\n",
    "memcached.py": "import socket, sys\ns = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
    "for n in range(40000): s.sendall(b'set k%d 0 0 1000 noreply\\r\\n' % n + b'x' * 1000 + b'\\r\\n')\n"
    "s.sendall(b'version\\r\\n'); s.recv(99)\n",
    "app.py": "import sys\nfrom flask import Flask\napp = Flask('a')\n\n@app.route('/')\ndef page(): return 'x' * (20 << 20)\n\napp.run(host='unix://' + sys.argv[1])\n",
    "forks.rb": "a = (0...400000).map { |n| \"x#{n}\" }\n3.times { fork { a.each { |s| s << 'y' }; sleep 0.8 } }\nProcess.waitall\n",
    "big.tcl": "for {set i 0} {$i < 500000} {incr i} {set a($i) x$i}\nputs [array size a]\n",
    "big.dot": "digraph {\n" + "\n".join(f"n{n} -> n{n * 7 % 400}; n{n} -> n{n * 3 % 400};" for n in range(400)) + "\n}\n",
    "big.ps": "%!\n/Courier findfont 10 scalefont setfont\n" + "".join(f"72 {700 - n % 60 * 10} moveto (line {n}) show\n" + ("showpage\n" if n % 60 == 59 else "") for n in range(6000)),
    "big.1": ".TH BIG 1\n.SH NAME\nbig\n" + "".join(f".PP\nWords and \\fBmore\\fP words {n}.\n" for n in range(20000)),
    "page.html": "<body>" + "<p style='color:red'>words</p>" * 5000 + "<script>a=[];for(i=0;i<500000;i++)a.push({i})</script>",
    "prometheus.yml": "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: self\n  static_configs:\n  - targets: ['127.0.0.1:18432']\n",
    "nginx.conf": "daemon off; pid n.pid; error_log log; events {} http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s2;"
    " server { listen unix:s; root D; } }\n",
    "cmake/CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(a CXX)\nadd_executable(a a.cc b.cc)\n",
    "cmake/a.cc": "#include <iostream>\nint b();\nint main() { std::cout << b(); }\n",
    "cmake/b.cc": '#include <regex>\n#include <string>\nint b() { return std::regex_match(std::string("a"), std::regex("a")); }\n',
    "wsgi.py": "kept = [str(n) for n in range(400000)]\n\ndef app(environ, start):\n    body = b'x' * (8 << 20); start('200 OK', []); return [body]\n",
    "processes.py": "import asyncio\nasync def one(n):\n    p = await asyncio.create_subprocess_exec('head', '-c', '9000000', '/dev/zero', stdout=-1)\n"
    "    return len((await p.communicate())[0])\nasync def main(): return sum(await asyncio.gather(*map(one, range(6))))\nprint(asyncio.run(main()))\n",
    "executor.py": "import numpy as n\nfrom concurrent.futures import ProcessPoolExecutor as P\ndef work(a): return a * 2\n"
    "if __name__ == '__main__':\n    kept = n.ones(4 << 20)\n    with P(3) as p: print(sum(float(a.sum()) for a in p.map(work, [n.ones(1 << 20)] * 9)))\n",
    "many_test.py": "import pytest\n\n@pytest.mark.parametrize('n', range(150))\ndef test_it(n):\n    assert len([str(i) for i in range(20000 + n)]) > n\n",
    "crate/Cargo.toml": "[package]\nname = 'big'\nversion = '0.1.0'\nedition = '2021'\n",
    "crate/src/main.rs": 'mod a; mod b;\nfn main() { println!("{} {}", a::f(3), b::f(4)); }\n',
    "crate/src/a.rs": 'pub fn f(n: u32) -> String { (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",") }\n',
    "crate/src/b.rs": "use std::collections::BTreeMap;\npub fn f(n: u32) -> usize { let m: BTreeMap<u32, String> = (0..n).map(|i| (i, i.to_string())).collect(); m.len() }\n",
    "big.f90": "program big\n real(8), allocatable :: a(:,:), b(:,:)\n allocate(a(1200,1200), b(1200,1200))\n call random_number(a)\n b = matmul(a, a)\n print *, sum(b)\nend program\n",
    "Big.hs": "import qualified Data.Map as M\nmain :: IO ()\nmain = print (M.size (M.fromList [(n * 7919 `mod` 300007, show n) | n <- [1 .. 200000 :: Int]]))\n",
    "big.erl": '-module(big).\n-export([main/0]).\nmain() -> L = [integer_to_list(N) || N <- lists:seq(1, 400000)], io:format("~p~n", [length(lists:sort(L))]).\n',
    "many/Makefile": "all: $(addprefix t,$(shell seq 300))\nt%:\n\t@echo $* | tr 1 2; true\n",
    "cmake/meson.build": "project('a', 'c')\nexecutable('a', 'a.c')\n",
    "cmake/a.c": '#include <stdio.h>\nint main(void) { puts("a"); return 0; }\n',
    "pkg/pyproject.toml": "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n[project]\nname = 'big'\nversion = '1'\n",
    "pkg/big.py": "A = 1\n",
    "npm/package.json": '{"name": "a", "version": "1.0.0", "dependencies": {"b": "file:./b"}}\n',
    "npm/b/package.json": '{"name": "b", "version": "1.0.0"}\n',
    "big.md": "".join(f"# Part {n}\n\nWords and *more* words [{n}](http://x/{n}).\n\n- one\n- two\n\n" for n in range(1200)),
    "big.tex": "\\documentclass{article}\\begin{document}\n" + "".join(f"\\section{{Part {n}}} Words and more words $x^{{{n}}}$.\n\n" for n in range(1200)) + "\\end{document}\n",
    "cluster.js": "const c = require('cluster'), h = require('http');\nif (c.isPrimary) { c.fork(); c.fork(); process.on('SIGTERM', () => { for (const w of Object.values(c.workers)) w.kill(); process.exit(); }); }\n"
    "else h.createServer((q, r) => r.end('x'.repeat(9 << 20))).listen(process.env.HOME + '/s');\n",
    "big.smt2": "".join(f"(declare-const x{n} Int)\n" for n in range(60)) + "(assert (distinct " + " ".join(f"x{n}" for n in range(60)) + "))\n"
    + "".join(f"(assert (and (> x{n} 0) (< x{n} 80) (distinct (mod x{n} 7) {n % 7})))\n" for n in range(60)) + "(check-sat)\n",
    "big.mod": "set I := 1..60;\nvar x{I} binary;\nmaximize z: sum{i in I} (17 * i mod 31 + 5) * x[i];\ns.t. c{k in 1..8}: sum{i in I} (13 * i * k mod 29 + 3) * x[i] <= 190;\nsolve;\nend;\n",
    "big.pov": "camera { location <0, 2, -5> look_at <0, 0, 2> }\nlight_source { <2, 4, -3> color rgb 1 }\n"
    + "".join(f"sphere {{ <{n % 9 - 4}, {n // 9 % 5 - 2}, {n // 45}>, 0.4 pigment {{ color rgb <1, 0, {n % 3}> }} finish {{ reflection 0.3 }} }}\n" for n in range(270)),
    "apache.conf": "ServerRoot /usr/lib/apache2\nLoadModule mpm_prefork_module modules/mod_mpm_prefork.so\nLoadModule authz_core_module modules/mod_authz_core.so\n"
    "PidFile ${HOME}/pid\nErrorLog ${HOME}/log\nListen 127.0.0.1:18434\nServerName x\nDocumentRoot ${D}\nStartServers 4\nMutex file:${HOME}\n",
    "lighttpd.conf": 'server.document-root = env.D\nserver.port = 18435\nserver.bind = "127.0.0.1"\nserver.errorlog = "/dev/null"\n',
    "page.php": '<?php $a = []; for ($i = 0; $i < 200000; $i++) $a[] = "x$i"; echo count($a);\n',
    "site/hugo.toml": "baseURL = 'http://x/'\ntitle = 'x'\ndisableKinds = ['taxonomy', 'term', 'RSS']\n",
    "site/layouts/_default/single.html": "<h1>{{ .Title }}</h1>{{ .Content }}\n",
    "site/layouts/index.html": "{{ range .Site.RegularPages }}<a href='{{ .Permalink }}'>{{ .Title }}</a>{{ end }}\n",
}  # fmt: skip


@functools.cache
def prepare() -> Path:
    """Return the folder with data that all programs read, made at the first call."""
    data = Path(tempfile.mkdtemp(prefix="memwatch-referee-data-"))
    data.chmod(0o755)
    dice = random.Random(1)
    with (data / "words.log").open("w") as file:
        for _ in range(48):
            words = [f"{dice.getrandbits(48):x} {dice.getrandbits(20):x}" for _ in range(50_000)]
            file.write("\n".join(words) + "\n")
    functions = [
        f"int f{n}(int a, int *b) {{ int s = 0; for (int i = 0; i < a; i++) s += b[i] * {n} + (s ^ i); return s; }}"
        for n in range(250)
    ]
    (data / "big.c").write_text("\n".join(functions) + "\nint main(void) { return 0; }\n")
    (data / "big.asm").write_text("\n".join(f"l{n}: mov rax, {n}\n jmp l{n}" for n in range(60_000)))
    (data / "big.json").write_text("[" + ",".join(f'{{"a": {n}, "b": "x{n}"}}' for n in range(400_000)) + "]")
    (data / "big.xml").write_text("<a>" + "".join(f"<b c='{n}'>{n}</b>" for n in range(300_000)) + "</a>")
    rows = "".join(f"insert into t values ({n}, 'row {n * 7919 % 99991}');\n" for n in range(200_000))
    (data / "big.sql").write_text(
        "pragma cache_size=-60000; begin; create table t (a, b);\n"
        + rows
        + "create index i on t (b); commit;\n"
    )
    for name, text in _FILES.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(text.replace("root D;", f"root {data};"))
    project = data / "project"
    project.mkdir()
    for n in range(6):
        (project / f"a{n}.c").write_text("\n".join(functions[n * 40 : n * 40 + 40]))
    objects = " ".join(f"a{n}.o" for n in range(6))
    (project / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\tgcc -O2 -c $< -o $@\n")
    (data / "site/content").mkdir()
    for n in range(300):
        (data / f"site/content/{n}.md").write_text(
            f"---\ntitle: Part {n}\n---\n" + "Words and *more* words.\n\n" * 40
        )
    genome = "".join(dice.choices("ACGT", k=400_000))
    (data / "big.fa").write_text(f">a\n{genome}\n")
    places = dice.choices(range(len(genome) - 100), k=20_000)
    (data / "reads.fa").write_text("".join(f">r{n}\n{genome[n : n + 100]}\n" for n in places))
    for n in range(2000):
        file_ = data / f"tree/{n % 40}/{n}"
        file_.parent.mkdir(parents=True, exist_ok=True)
        file_.write_bytes(dice.randbytes(3000))
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", data / "classes", data / "Big.java"], check=True, timeout=120)
    subprocess.run(["chmod", "-R", "a+rX", data], check=True)
    return data
