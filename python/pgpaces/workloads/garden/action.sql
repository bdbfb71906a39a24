\set gardener random(1, 100 * :scale)
SELECT planting_id FROM ui.get_plantings_listing(:gardener) ORDER BY random() LIMIT 1 \gset
SELECT destination_id FROM ui.get_plant_destinations(:gardener) ORDER BY random() LIMIT 1 \gset
SELECT * FROM ui.insert_plant(:planting_id, :destination_id, '2017-05-01', 'This is a note', 'Text field');
