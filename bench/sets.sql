\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
\set a 1 + 2 * 3
\set b :a * :aid / 7
\set c :b % 100
\set d (:a + :b) * (:c - 1)
\set e case when :c > 50 then :a else :b end
\set f greatest(:a, :b, :c)
\set g abs(:delta)
\set h :g / 2.5
\set i int(:h) + 1
\set j sqrt(:g)
\set k random_zipfian(1, 1000, 1.2)
\set l random_gaussian(1, 1000, 2.5)
\set m hash(:aid)
\set n :m & 1023
\set o :n > 500 and :c < 50
\set p least(:n, :a) + :i
