export const gait = (speed) => (speed > 20 ? "gallop" : speed > 10 ? "trot" : "walk");
